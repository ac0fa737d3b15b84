// Runs inside the namespace of a test (http.test.mjs, connection limits): opens as many connections as
// one address may have, tries one more, tries another address, and prints the results as JSON.
import { Raw, ask, request } from './raw.mjs';
import { until } from './server.mjs';

const [, , host, port] = process.argv;
const server = { host, port: Number(port) };
const health = request('GET', '/health');
const inside = [];
const seen = { inside: [] };
for (let i = 0; i < 3; i++) {
  const raw = await Raw.connect(server, { localAddress: '192.0.2.1' });
  inside.push(raw);
  seen.inside.push((await raw.write(health).answer()).status);
}
seen.beyond = await ask(server, health, { localAddress: '192.0.2.1' });
seen.other = (await ask(server, health, { localAddress: '192.0.2.2' })).status;
inside.pop().destroy();
seen.afterOneLeft = await until('there is room again', async () => {
  const { status } = await ask(server, health, { localAddress: '192.0.2.1' });
  return status === 200 && status;
});
for (const raw of inside) raw.destroy();
console.log(JSON.stringify(seen));
