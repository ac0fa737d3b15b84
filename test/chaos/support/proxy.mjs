// A TCP proxy between a node and one of its stores, with which a test breaks the connection: cut (all
// connections end at once), hold (connections stay open and nothing passes, as with an unplugged
// cable; data arrive late, or never), silence (the same for the open connections, not for new ones),
// refuse (no listener).
import { once } from 'node:events';
import net from 'node:net';

class Pair {
  constructor(proxy, client) {
    this.proxy = proxy;
    this.client = client;
    this.held = []; // what to do after release()
    this.ended = false;
    this.silent = false;
    client.setNoDelay(true);
    client.on('data', (bytes) => this.pass(() => this.toServer(bytes)));
    client.on('close', () => this.pass(() => this.end()));
    client.on('error', () => {});
    this.pass(() => this.connect());
  }

  // Now, or after release(), in order.
  pass(act) {
    if (this.ended) return;
    if (this.proxy.holds || this.silent) this.held.push(act);
    else act();
  }

  release() {
    const acts = this.held.splice(0);
    for (const act of acts) this.pass(act);
  }

  connect() {
    this.server = net.connect(this.proxy.target, '127.0.0.1').setNoDelay(true);
    this.server.on('data', (bytes) => this.pass(() => this.toClient(bytes)));
    this.server.on('close', () => this.pass(() => this.end()));
    this.server.on('error', () => {});
  }

  toServer(bytes) {
    const cut = this.proxy.watch?.(bytes);
    if (cut === 'before') return this.end();
    this.server.write(bytes);
    // The server gets the bytes; the client never gets the answer.
    if (cut === 'after') {
      this.client.destroy();
      this.proxy.pairs.delete(this);
      setTimeout(() => this.end(), 1000);
    }
  }

  toClient(bytes) {
    if (!this.client.destroyed) this.client.write(bytes);
  }

  end() {
    this.ended = true;
    this.client.destroy();
    this.server?.destroy();
    this.proxy.pairs.delete(this);
  }
}

export class Proxy {
  static async open(target) {
    const proxy = new Proxy(target);
    await proxy.accept();
    return proxy;
  }

  constructor(target) {
    this.target = target;
    this.port = 0;
    this.pairs = new Set();
    this.holds = false;
    this.watch = undefined; // (bytes of a client) → 'before' or 'after' they pass, cut; or nothing
    this.taken = 0; // connections so far
  }

  // Listens, on the same port as before.
  async accept() {
    this.listener = net.createServer((client) => {
      this.taken++;
      this.pairs.add(new Pair(this, client));
    });
    this.listener.listen(this.port, '127.0.0.1').unref();
    await once(this.listener, 'listening');
    this.port = this.listener.address().port;
  }

  cut() {
    for (const pair of [...this.pairs]) pair.end();
  }

  refuse() {
    this.listener.close();
    this.cut();
  }

  hold() {
    this.holds = true;
  }

  silence() {
    for (const pair of this.pairs) pair.silent = true;
  }

  // Passes the delayed data on.
  release() {
    this.holds = false;
    for (const pair of [...this.pairs]) pair.release();
  }

  // Drops the delayed data.
  drop() {
    this.cut();
    this.release();
  }

  close() {
    this.refuse();
  }
}
