// Who may confirm a reservation, and cancel a CONFIRMED one: the user, or only the shop, by its key or
// by a JWT that the browser carries.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { jwt } from './support/jwt.mjs';
import { bearer } from './support/queue.mjs';
import { Sale, assertHotIsLedger, audit } from './support/reservations.mjs';
import { assertProblem, removeFolder, start, tempFolder, test, times } from './support/server.mjs';

const USERS_KEY = 'the key for assertions, 32 bytes or so';
const SHOP_KEY = 'the key for confirmations, 32 bytes or so';
const PRICE = 1500;
const NOBODY = '01a1e240-6ea8-7dac-badf-d111f7a4fd76';

const seconds = (more) => Math.floor(Date.now() / 1000) + more;
const good = (id, more) => ({ reservation: id, amount: PRICE, exp: seconds(300), ...more });
const shop = (text) => ({ 'x-shop-confirmation': text });
const confirmation = (id, more) => shop(jwt(SHOP_KEY, good(id, more)));
const unsigned = (id) => jwt('', good(id), { alg: 'none' }).replace(/[^.]*$/, '');

// What is refused although it looks like a confirmation: [status, code, what the detail says, header].
// `verb`: what it is for.
const badOnes = (id, verb) => {
  const act = { action: verb };
  const signed = (claims, header) => shop(jwt(SHOP_KEY, claims, header));
  const without = (name) => signed({ ...good(id, act), [name]: undefined });
  const invalid = (detail, headers) => [401, 'confirmation_invalid', detail, headers];
  const mismatch = (detail, headers) => [403, 'confirmation_mismatch', detail, headers];
  return [
    invalid(/it has expired/, confirmation(id, { ...act, exp: seconds(-1) })),
    invalid(/at most 10 minutes/, confirmation(id, { ...act, exp: seconds(700) })),
    invalid(/exp is required/, without('exp')),
    invalid(/exp must be a number/, confirmation(id, { ...act, exp: 'soon' })),
    invalid(/not valid yet/, confirmation(id, { ...act, nbf: seconds(100) })),
    invalid(/reservation must be/, without('reservation')),
    invalid(/amount must be/, without('amount')),
    invalid(/amount must be/, confirmation(id, { ...act, amount: `${PRICE}` })),
    invalid(/amount must be/, signed(JSON.stringify(good(id, act)).replace(`${PRICE}`, `${PRICE}.0`))),
    invalid(/currency must be/, confirmation(id, { ...act, currency: 'won' })),
    invalid(/action must be/, confirmation(id, { action: 'refund' })),
    invalid(/not a JWT signed/, shop(jwt(USERS_KEY, good(id, act)))),
    invalid(/not a JWT signed/, shop(unsigned(id))),
    invalid(/not a JWT signed/, shop('')),
    invalid(/not a JWT signed/, shop('x.y.z')),
    invalid(/alg HS256/, signed(good(id, act), { alg: 'none' })),
    invalid(/alg HS256/, signed(good(id, act), { alg: 'HS512' })),
    invalid(/no crit/, signed(good(id, act), { alg: 'HS256', crit: ['exp'] })),
    invalid(/not a JSON object/, signed('[]')),
    mismatch(/another reservation/, confirmation(NOBODY, act)),
    mismatch(/amount/, confirmation(id, { ...act, amount: PRICE - 1 })),
    mismatch(/amount/, confirmation(id, { ...act, amount: -PRICE })),
    mismatch(/amount/, confirmation(id, { ...act, currency: 'USD' })),
    verb === 'confirm' ? mismatch(/for cancelling/, confirmation(id, { action: 'cancel' })) : mismatch(/action must be "cancel"/, confirmation(id)),
  ];
};

// How users prove who they are, by users.auth. `enter`: the ACTIVE user's place and own headers.
const AUTHS = {
  trusted: { args: [], enter: async (sale, name) => sale.buyer(name) },
  signed: {
    args: ['--users-auth', 'signed', '--users-key-file'],
    enter: async (sale, name) => {
      const headers = { 'x-user-assertion': jwt(USERS_KEY, { sub: name }) };
      const answer = await sale.server.call('POST', `/queue/${sale.name}/enter`, { headers });
      return { token: sale.place(answer, 200).entryToken };
    },
  },
  anonymous: {
    args: ['--users-auth', 'anonymous'],
    enter: async (sale) => ({ token: sale.place(await sale.server.call('POST', `/queue/${sale.name}/enter`), 200).entryToken }),
  },
};

const keys = {};
before(() => {
  keys.folder = tempFolder();
  for (const [name, key] of Object.entries({ users: USERS_KEY, shop: SHOP_KEY })) {
    keys[name] = path.join(keys.folder, name);
    fs.writeFileSync(keys[name], `${key}\n`, { mode: 0o600 });
  }
});
after(() => removeFolder(keys.folder));

for (const [auth, { args, enter }] of Object.entries(AUTHS))
  describe(`users.auth ${auth}`, () => {
    let server;
    before(async () => {
      const own = auth === 'signed' ? [...args, keys.users] : args;
      server = await start({ args: [...own, '--shop-key-file', keys.shop, '--queue-tick-ms', '10'] });
    });
    after(async () => {
      audit(server);
      await server.stop();
    });
    const open = (name, more) =>
      Sale.open(server, name, {}, { sections: [{ id: 'A', capacity: 500, price: PRICE }], maxPerUser: 500, cancelConfirmed: undefined, ...more });
    const isRefused = async (answer, [status, code, detail = /./]) => {
      const problem = assertProblem(await answer, status, code);
      assert.match(problem.detail, detail);
    };

    for (const confirmBy of [undefined, 'shop', 'user']) {
      const resolved = confirmBy ?? (auth === 'trusted' ? 'user' : 'shop');

      test(`confirmBy ${confirmBy}: confirm is for ${resolved === 'user' ? 'the owner and the shop' : 'the shop'}`, async () => {
        const sale = await open(`BY/${confirmBy}`, { confirmBy });
        const [ann, ben] = [await enter(sale, 'ann'), await enter(sale, 'ben')];
        const admin = { token: server.adminKey };
        const { id } = await sale.held(ann);
        const before = JSON.stringify(sale.rows());
        for (const [status, code, detail, headers] of badOnes(id, 'confirm')) {
          await isRefused(sale.confirm(ann, id, { headers }), [status, code, detail]);
          if (code === 'confirmation_mismatch') await isRefused(sale.confirm(admin, id, { headers }), [status, code, detail]);
        }
        await isRefused(sale.confirm(ben, id), [403, 'not_yours']);
        await isRefused(sale.confirm(ben, id, { headers: confirmation(id) }), [403, 'not_yours']);
        const alone = await sale.confirm(undefined, id, { headers: confirmation(id) });
        assertProblem(alone, 401, auth === 'signed' ? 'assertion_required' : 'token_required');
        if (resolved === 'shop') await isRefused(sale.confirm(ann, id), [403, 'confirm_by_shop', /X-Shop-Confirmation/]);
        assert.equal(JSON.stringify(sale.rows()), before, 'a refusal changes nothing');

        const ways = [
          [admin, () => ({})],
          [ann, confirmation],
          [ann, (own) => confirmation(own, { currency: 'KRW', action: 'confirm', nbf: seconds(-1) })],
          [admin, confirmation],
          ...(resolved === 'user' ? [[ann, () => ({})]] : []),
        ];
        for (const [who, headersFor] of ways) {
          const held = await sale.held(ann);
          const options = { headers: headersFor(held.id) };
          const first = await sale.confirm(who, held.id, options);
          assert.equal(sale.found(first, 'CONFIRMED').price, PRICE);
          assert.equal((await sale.confirm(who, held.id, options)).text, first.text, 'again: the same answer');
          if (resolved === 'shop') await isRefused(sale.confirm(ann, held.id), [403, 'confirm_by_shop']);
          else assert.equal((await sale.confirm(ann, held.id)).text, first.text);
        }
        await sale.cancelled(ann, id);
        await assertHotIsLedger(sale);
      });
    }

    test('cancel: a hold is its owner\'s to cancel; what is CONFIRMED the shop\'s, or with cancelConfirmed also the owner\'s', async () => {
      for (const cancelConfirmed of [undefined, false, true]) {
        const sale = await open(`CANCEL/${cancelConfirmed}`, { cancelConfirmed, confirmBy: cancelConfirmed ? 'shop' : 'user' });
        const [ann, ben] = [await enter(sale, 'ann'), await enter(sale, 'ben')];
        const admin = { token: server.adminKey };
        await sale.held(ann); // so that the place stays ACTIVE
        for (const status of ['HELD', 'CONFIRMED']) {
          const { id } = await sale.held(ann);
          if (status === 'CONFIRMED') await sale.confirmed(admin, id);
          const before = JSON.stringify(sale.rows());
          if (cancelConfirmed === undefined)
            for (const [code, word, detail, headers] of badOnes(id, 'cancel')) await isRefused(sale.cancel(ann, id, { headers }), [code, word, detail]);
          await isRefused(sale.cancel(ben, id), [403, 'not_yours']);
          await isRefused(sale.cancel(ben, id, { headers: confirmation(id, { action: 'cancel' }) }), [403, 'not_yours']);
          if (status === 'CONFIRMED' && !cancelConfirmed) await isRefused(sale.cancel(ann, id), [403, 'cancel_by_shop', /X-Shop-Confirmation/]);
          assert.equal(JSON.stringify(sale.rows()), before, 'a refusal changes nothing');
          const ways = [[admin, {}], [ann, confirmation(id, { action: 'cancel' })]];
          if (status === 'HELD' || cancelConfirmed) ways.push([ann, {}]);
          for (const [who, headers] of ways) {
            const own = await sale.held(ann);
            if (status === 'CONFIRMED') await sale.confirmed(admin, own.id);
            const options = { headers: headers['x-shop-confirmation'] ? confirmation(own.id, { action: 'cancel' }) : {} };
            const first = await sale.cancel(who, own.id, options);
            sale.found(first, 'CANCELLED');
            for (const again of [await sale.cancel(who, own.id, options), await sale.cancel(ann, own.id)]) assert.equal(again.text, first.text);
          }
        }
        await assertHotIsLedger(sale);
      }
    });

    if (auth === 'anonymous')
      test('25 anonymous users confirm none of the 100 seats that they hold', async () => {
        const sale = await open('CROWD/1', { sections: [{ id: 'A', capacity: 100, price: PRICE }], maxPerUser: 4 });
        const users = await Promise.all(Array.from({ length: 25 }, () => enter(sale)));
        const holds = await Promise.all(users.map((who) => sale.held(who, { quantity: 4 })));
        assert.deepEqual(await sale.counts(), { available: 0, held: 100, confirmed: 0 });
        await Promise.all(users.map((who, i) => isRefused(sale.confirm(who, holds[i].id), [403, 'confirm_by_shop'])));
        assert.deepEqual(await sale.counts(), { available: 0, held: 100, confirmed: 0 });
        assert.equal((await sale.leave(users[0].token)).status, 204, 'and a user who leaves gives the seats back');
        assert.deepEqual(await sale.counts(), { available: 4, held: 96, confirmed: 0 });
      });

    if (auth === 'trusted') {
      test('a cancel without the right to end a CONFIRMED reservation, against its confirm: one of them wins', async () => {
        const sale = await open('RACE/1');
        const ann = await enter(sale, 'ann');
        await sale.held(ann);
        const wins = { confirm: 0, cancel: 0 };
        const race = async (_, i) => {
          const { id } = await sale.held(ann);
          const verbs = i % 2 === 0 ? ['confirm', 'cancel'] : ['cancel', 'confirm'];
          const answers = await Promise.all(verbs.map((verb) => sale[verb](ann, id)));
          const { confirm, cancel } = Object.fromEntries(verbs.map((verb, k) => [verb, answers[k]]));
          const winner = confirm.status === 200 ? 'confirm' : 'cancel';
          wins[winner]++;
          sale.found(winner === 'confirm' ? confirm : cancel, winner === 'confirm' ? 'CONFIRMED' : 'CANCELLED');
          if (winner === 'confirm') assertProblem(cancel, 403, 'cancel_by_shop');
          else assertProblem(confirm, 409, 'reservation_ended');
          await sale.got(ann, id, winner === 'confirm' ? 'CONFIRMED' : 'CANCELLED');
        };
        for (let round = 0; round < times(8); round++) await Promise.all(Array.from({ length: 25 }, race));
        assert.ok(wins.confirm > 0 && wins.cancel > 0, JSON.stringify(wins));
        assert.deepEqual(await sale.counts(), { available: 499 - wins.confirm, held: 1, confirmed: wins.confirm });
        await assertHotIsLedger(sale);
      });

      test('the settings can be changed at any time, and an event without them shows what they mean', async () => {
        const sale = await open('SET/1');
        const shown = async () => {
          const { json } = await server.call('GET', `/events/${sale.name}`);
          return [json.confirmBy, json.cancelConfirmed];
        };
        const patch = async (body) => {
          const { status, json, text } = await server.admin('PATCH', `/admin/events/${sale.name}`, body);
          assert.equal(status, 200, text);
          assert.deepEqual(await shown(), [json.confirmBy ?? 'user', json.cancelConfirmed]);
          return [json.confirmBy, json.cancelConfirmed];
        };
        const ann = await enter(sale, 'ann');
        const { id } = await sale.held(ann);
        assert.deepEqual(await patch({}), [null, false]);
        assert.deepEqual(await patch({ confirmBy: 'shop' }), ['shop', false]);
        await isRefused(sale.confirm(ann, id), [403, 'confirm_by_shop']);
        assert.deepEqual(await patch({ cancelConfirmed: true, confirmBy: null }), [null, true]);
        await sale.confirmed(ann, id);
        await sale.cancelled(ann, id);
        assert.deepEqual(await patch({ confirmBy: 'user' }), ['user', true]);
        for (const wrong of ['', 'SHOP', 'nobody', 1, true, ['shop']]) {
          const problem = assertProblem(await server.admin('PATCH', `/admin/events/${sale.name}`, { confirmBy: wrong }), 422, 'invalid_field');
          assert.equal(problem.detail, 'confirmBy must be one of null, "shop", "user".');
        }
        assertProblem(await server.admin('PATCH', `/admin/events/${sale.name}`, { cancelConfirmed: null }), 422, 'invalid_field');
        assertProblem(await server.admin('PATCH', `/admin/events/${sale.name}`, { state: null }), 422, 'invalid_field');
        const { version, ...json } = (await server.admin('GET', `/admin/events/${sale.name}`)).json;
        assert.ok(version > 1);
        assert.equal((await server.admin('PUT', `/admin/events/${sale.name}`, json)).json.confirmBy, 'user');
        assert.equal((await server.admin('PUT', `/admin/events/${sale.name}`, { ...json, confirmBy: undefined })).json.confirmBy, null);
      });
    }
  });
