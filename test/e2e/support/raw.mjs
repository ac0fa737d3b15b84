// A TCP socket on which a test sends exact bytes, and a reader of the answers.
import net from 'node:net';
import { until } from './server.mjs';

const CRLF2 = Buffer.from('\r\n\r\n');

// Reads one response off the bytes: { status, headers, text, json, length, bytes }, or null when
// it is not whole yet. The answer to HEAD has a length and no body.
function parseResponse(bytes, isHead) {
  const end = bytes.indexOf(CRLF2);
  if (end < 0) return null;
  const [statusLine, ...lines] = bytes.subarray(0, end).toString('latin1').split('\r\n');
  const [, status] = /^HTTP\/1\.1 (\d{3}) [A-Z]/.exec(statusLine) ?? [];
  if (status === undefined) throw new Error(`no status line: ${JSON.stringify(statusLine)}`);
  const headers = {};
  for (const line of lines) {
    const [, name, value] = /^([A-Za-z-]+): (.*)$/.exec(line) ?? [];
    if (name === undefined) throw new Error(`no header: ${JSON.stringify(line)}`);
    if (name.toLowerCase() in headers) throw new Error(`twice: ${line}`);
    headers[name.toLowerCase()] = value;
  }
  const bodiless = isHead || status[0] === '1' || status === '204';
  const length = bodiless ? 0 : Number(headers['content-length']);
  if (Number.isNaN(length)) throw new Error('a body without a length');
  const total = end + 4 + length;
  if (bytes.length < total) return null;
  const text = bytes.subarray(end + 4, total).toString('utf8');
  const isJson = /json/.test(headers['content-type'] ?? '') && text !== '';
  return { status: Number(status), headers, text, json: isJson ? JSON.parse(text) : undefined, bytes: total };
}

// All whole responses at the start of the bytes. `heads`: indexes of answers to HEAD.
export function parseResponses(bytes, heads = []) {
  const responses = [];
  for (;;) {
    const one = parseResponse(bytes, heads.includes(responses.length));
    if (one === null) return { responses, rest: bytes };
    responses.push(one);
    bytes = bytes.subarray(one.bytes);
  }
}

export class Raw {
  // `heads`: which answers are to HEAD requests, counted from the connection's first. `sink`: the
  // answers are only counted in bytes, for tests with many.
  static async connect({ host = '127.0.0.1', port }, { heads = [], localAddress, sink = false } = {}) {
    const raw = new Raw();
    raw.heads = heads;
    raw.responses = [];
    raw.received = 0;
    raw.rest = Buffer.alloc(0);
    raw.ended = false; // the server has closed its side, in order
    raw.closed = false;
    raw.error = null;
    raw.socket = net.connect({ host, port, noDelay: true, allowHalfOpen: true, localAddress });
    await new Promise((resolve, reject) => {
      raw.socket.once('connect', resolve);
      raw.socket.once('error', reject);
    });
    raw.socket.on('data', (bytes) => {
      raw.received += bytes.length;
      if (!sink) raw.#take(bytes);
    });
    raw.socket.on('end', () => (raw.ended = true));
    raw.socket.on('error', (error) => (raw.error = error));
    raw.socket.on('close', () => (raw.closed = true));
    return raw;
  }

  #take(bytes) {
    const { responses, rest } = parseResponses(
      Buffer.concat([this.rest, bytes]),
      this.heads.map((index) => index - this.responses.length),
    );
    this.responses.push(...responses);
    this.rest = rest;
  }

  write(bytes) {
    this.socket.write(bytes);
    return this;
  }

  // Closes the sending side.
  end() {
    this.socket.end();
    return this;
  }

  // The answers number 0 to count - 1 of this connection.
  async answers(count, timeoutMs = 60000) {
    await until(
      `${count} answers (there are ${this.responses.length}, ended ${this.ended}, ${this.error})`,
      () => this.responses.length >= count || this.closed || this.ended,
      timeoutMs,
    );
    if (this.responses.length < count)
      throw new Error(`closed after ${this.responses.length} of ${count} answers: ${this.error}`);
    return this.responses.slice(0, count);
  }

  async answer(timeoutMs) {
    return (await this.answers(this.responses.length + 1, timeoutMs)).at(-1);
  }

  // Everything up to the server's orderly close. A reset is an error: it may eat the answer.
  async toEnd(timeoutMs = 60000) {
    await until('the server closes', () => this.ended || this.closed, timeoutMs);
    if (this.error) throw this.error;
    if (!this.ended) throw new Error('closed, but not in order');
    if (this.rest.length > 0) throw new Error(`half an answer: ${this.rest}`);
    return this.responses;
  }

  destroy() {
    this.socket.destroy();
  }
}

// Sends the bytes on a new connection and returns the answers up to the close.
export async function exchange(server, bytes, options = {}) {
  const raw = await Raw.connect(server, options);
  raw.write(bytes);
  try {
    return await raw.toEnd(options.timeoutMs);
  } finally {
    raw.destroy();
  }
}

// Sends the bytes on a new connection and returns the first answer.
export async function ask(server, bytes, options = {}) {
  const raw = await Raw.connect(server, options);
  raw.write(bytes);
  try {
    return (await raw.answers(1, options.timeoutMs))[0];
  } finally {
    raw.destroy();
  }
}

// "GET /x HTTP/1.1" with a Host and further lines, and a body with its length.
export function request(method, target, { headers = [], body, version = '1.1' } = {}) {
  const lines = [`${method} ${target} HTTP/${version}`, 'Host: test', ...headers];
  if (body !== undefined) lines.push(`Content-Length: ${Buffer.byteLength(body)}`);
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), Buffer.from(body ?? '')]);
}

export function adminRequest(server, method, target, body, headers = []) {
  const own = [`Authorization: Bearer ${server.adminKey}`];
  if (body !== undefined) own.push('Content-Type: application/json');
  const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
  return request(method, target, { headers: [...own, ...headers], body: text });
}
