// nginx in its fastest configuration: one process, no log, one fixed answer or one file.

import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { gzipSync } from 'node:zlib'

import { cores } from '../lib/machine.mjs'
import { start, temporaryFolder, waitFor } from '../lib/processes.mjs'

// Debian keeps it where only root's PATH leads.
const BINARY = existsSync('/usr/sbin/nginx') ? '/usr/sbin/nginx' : 'nginx'

async function freePort() {
  const server = createServer()
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return port
}

function quoted(body) {
  if (body.includes('$')) throw new Error("nginx would take a '$' in the body for a variable")
  return `'${body.replace(/[\\']/g, '\\$&')}'`
}

// A file that is compressed already, as nginx is configured for static files of a site.
const FILE = `
    root FOLDER/files;
    gzip_static on;
    gzip_vary on;
    sendfile on;
    tcp_nopush on;
    open_file_cache max=16;
    open_file_cache_valid 600s;
    add_header Cache-Control no-cache;
    try_files /file =404;`

const answerOf = ({ body, asFile, folder }) =>
  asFile ? FILE.replace('FOLDER', folder) : `return 200 ${quoted(body)};`

function configuration({ port, body, asFile, contentType, connections, folder }) {
  return `
daemon off;
master_process off;
worker_processes 1;
pid ${folder}/nginx.pid;
error_log stderr warn;
events { worker_connections ${connections}; }
http {
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  default_type ${contentType};
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location / { ${answerOf({ body, asFile, folder })} }
  }
}
`
}

// Answers every path with `body`; `asFile`: from a file, compressed if the client accepts it. Gives back { pid, url } besides what start() gives.
export async function startNginx({ body, asFile = false, contentType, connections = 1024 }) {
  const folder = temporaryFolder()
  const port = await freePort()
  const file = `${folder}/nginx.conf`
  if (asFile) {
    mkdirSync(`${folder}/files`)
    writeFileSync(`${folder}/files/file`, body)
    writeFileSync(`${folder}/files/file.gz`, gzipSync(body, { level: 9 }))
  }
  writeFileSync(file, configuration({ port, body, asFile, contentType, connections, folder }))
  const server = start(cores.server, BINARY, ['-e', 'stderr', '-p', folder, '-c', file], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const url = `http://127.0.0.1:${port}`
  await waitFor(server, 'it answers', async () => {
    try {
      return (await (await fetch(url)).text()) === body
    } catch {
      return false
    }
  })
  return { ...server, process: server, url }
}
