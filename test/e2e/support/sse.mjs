// A client for server-sent events on a TCP socket: the events in order, and how the stream ended.
import assert from 'node:assert/strict';
import net from 'node:net';
import { until } from './server.mjs';

export class Stream {
  static open(room, token, options) {
    return Stream.at(room.server, `/queue/${room.name}/subscribe/${token}`, options);
  }

  // `lastEventId`: as a client that comes again sends it. `paused`: reads nothing, ever.
  static async at({ port, host }, target, { lastEventId, paused = false, headers = {} } = {}) {
    const stream = new Stream();
    stream.socket = net.connect({ host, port });
    await new Promise((resolve, reject) => {
      stream.socket.once('connect', resolve);
      stream.socket.once('error', reject);
    });
    stream.socket.on('error', (error) => (stream.error = error));
    stream.socket.on('close', () => (stream.closed = true));
    if (lastEventId !== undefined) headers = { ...headers, 'Last-Event-ID': lastEventId };
    const lines = Object.entries({ Host: 'test', Accept: 'text/event-stream', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
    stream.socket.write(`GET ${target} HTTP/1.1\r\n${lines.join('')}\r\n`);
    if (paused) return stream;
    stream.socket.setEncoding('utf8').on('data', (text) => stream.#take(text));
    stream.socket.on('end', () => (stream.ended = true));
    await until('the stream is answered', () => stream.status !== null || stream.closed);
    assert.notEqual(stream.status, null, `no answer: ${stream.error}`);
    return stream;
  }

  constructor() {
    this.status = null;
    this.headers = {};
    this.events = []; // { type, id, data, atMs }, data parsed
    this.comments = [];
    this.retryMs = null;
    this.ended = false; // the server has closed its side, in order
    this.closed = false;
    this.error = null;
    this.rest = '';
  }

  #take(text) {
    this.rest += text;
    if (this.status === null) {
      const end = this.rest.indexOf('\r\n\r\n');
      if (end < 0) return;
      const [first, ...lines] = this.rest.slice(0, end).split('\r\n');
      for (const line of lines) this.headers[line.slice(0, line.indexOf(':')).toLowerCase()] = line.slice(line.indexOf(':') + 2);
      this.rest = this.rest.slice(end + 4);
      this.status = Number(first.split(' ')[1]);
    }
    if (this.headers['content-type'] !== 'text/event-stream') return;
    for (let at; (at = this.rest.indexOf('\n\n')) >= 0; this.rest = this.rest.slice(at + 2)) this.#block(this.rest.slice(0, at));
  }

  #block(text) {
    const event = {};
    for (const line of text.split('\n')) {
      const at = line.indexOf(': ');
      const [field, value] = [line.slice(0, at), line.slice(at + 2)];
      if (field === '') this.comments.push(value);
      else if (field === 'retry') this.retryMs = Number(value);
      else if (field === 'event') event.type = value;
      else if (field === 'id') event.id = value;
      else if (field === 'data') event.data = JSON.parse(value);
      else assert.fail(`no field of an event: ${JSON.stringify(line)}`);
    }
    if (event.data !== undefined) this.events.push({ ...event, atMs: performance.now() });
  }

  get last() {
    return this.events.at(-1);
  }

  // Waits until the last event has this status or position.
  async hears(what, timeoutMs) {
    const said = () => (typeof what === 'number' ? this.last?.data.position === what : this.last?.data.status === what);
    await until(`the stream hears ${what} (the last is ${JSON.stringify(this.last)}, ended ${this.ended})`, () => said() || this.closed, timeoutMs);
    assert.ok(said(), `closed after ${JSON.stringify(this.last)}: ${this.error}`);
    return this.last.data;
  }

  // The server has closed it in order, with nothing left half.
  async toEnd(timeoutMs) {
    await until(`the stream ends (the last is ${JSON.stringify(this.last)})`, () => this.ended || this.closed, timeoutMs);
    assert.equal(this.error, null);
    assert.ok(this.ended, 'closed, but not in order');
    if (this.headers['content-type'] === 'text/event-stream') assert.equal(this.rest, '', 'half an event');
  }

  destroy() {
    this.socket.destroy();
  }
}
