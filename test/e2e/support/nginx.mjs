// Starts a real nginx in front of a server, with a temporary folder.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { endOf, launch, removeFolder, tempFolder, until } from './server.mjs';

export const NGINX = ['/usr/sbin/nginx', '/usr/local/sbin/nginx'].find((file) => fs.existsSync(file)) ?? 'nginx';

// A free port below those that the kernel gives to outgoing connections: of those, another test's
// connection may take one before nginx does.
export async function freePort() {
  const [first] = fs.readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split(/\s/);
  for (;;) {
    const port = 10240 + Math.floor(Math.random() * (Math.max(Number(first), 20000) - 10240));
    const probe = net.createServer().listen(port, '127.0.0.1');
    const isFree = await new Promise((resolve) => probe.once('listening', () => resolve(true)).once('error', () => resolve(false)));
    if (!isFree) continue;
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
}

export const connects = (port) =>
  new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1', () => resolve(socket.destroy() && true)).on('error', () => resolve(false));
  });

// `http`: what stands in its server block; `files`: name → text, below its root. Returns
// { port, stop }.
export async function startNginx(http, files = {}) {
  const folder = tempFolder();
  const at = (name) => path.join(folder, name);
  for (const [name, text] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(at(`www/${name}`)), { recursive: true });
    fs.writeFileSync(at(`www/${name}`), text);
  }
  const port = await freePort();
  fs.writeFileSync(
    at('nginx.conf'),
    `daemon off; master_process off; worker_processes 1; ${process.getuid() === 0 ? 'user root;' : ''}
     pid ${at('nginx.pid')}; error_log ${at('error.log')} info;
     events { worker_connections 256; }
     http {
       access_log off;
       client_body_temp_path ${at('body')}; proxy_temp_path ${at('proxy')};
       fastcgi_temp_path ${at('fastcgi')}; uwsgi_temp_path ${at('uwsgi')}; scgi_temp_path ${at('scgi')};
       server { listen 127.0.0.1:${port}; root ${at('www')}; ${http} }
     }`,
  );
  const nginx = launch([NGINX, '-e', at('error.log'), '-p', folder, '-c', at('nginx.conf')]);
  await until('nginx listens', async () => {
    if (nginx.exit) assert.fail(`nginx did not start: ${nginx.stderr}`);
    return connects(port);
  });
  return {
    host: '127.0.0.1',
    port,
    async stop() {
      nginx.child.kill('SIGTERM');
      await endOf(nginx);
      removeFolder(folder);
    },
  };
}
