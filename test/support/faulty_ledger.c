#include "faulty_ledger.h"

#include <assert.h>

#include "base/list.h"
#include "run/mailbox.h"

static struct faulty_ledger *faulty_of(struct ledger *l) {
    return CONTAINER_OF(l, struct faulty_ledger, ledger);
}

static enum err fail(struct faulty_ledger *f, int *fails, struct ledger_record *r) {
    (*fails)--;
    r->result = f->why;
    r->task.home = mailbox_mine();
    mailbox_post(r->task.home, &r->task);
    return ERR_OK;
}

/* ---- an answer that is late ---- */

static struct faulty_ledger *late;

static void on_end_done(struct task *task) {
    late->end_run(task);
    late->get_run(&late->get->task);
}

static void on_get_answered(struct task *task) {
    (void)task;
    late->end_run = late->end->task.run;
    late->end->task.run = on_end_done;
    enum err refused = ledger_submit(late->real, late->end);
    assert(refused == ERR_OK);
}

static enum err keep_end(struct faulty_ledger *f, struct ledger_record *r) {
    f->end = r;
    return ERR_OK;
}

static enum err ask_late(struct faulty_ledger *f, struct ledger_record *r) {
    assert(f->end != NULL);
    late = f;
    f->is_late = false;
    f->get = r;
    f->get_run = r->task.run;
    r->task.run = on_get_answered;
    return ledger_ask(f->real, r);
}

static enum err submit_or_fail(struct ledger *l, struct ledger_record *r) {
    struct faulty_ledger *f = faulty_of(l);
    if (f->is_full) return ERR_OVERLOADED;
    if (f->is_late && r->kind == LEDGER_END) return keep_end(f, r);
    return f->fails > 0 ? fail(f, &f->fails, r) : ledger_submit(f->real, r);
}

static enum err ask_or_fail(struct ledger *l, struct ledger_record *r) {
    struct faulty_ledger *f = faulty_of(l);
    if (f->is_full) return ERR_OVERLOADED;
    if (f->is_late && r->kind == LEDGER_RESERVATION_GET) return ask_late(f, r);
    return f->asks_fail > 0 ? fail(f, &f->asks_fail, r) : ledger_ask(f->real, r);
}

static void health_of_real(struct ledger *l, struct ledger_health *out) {
    ledger_health(faulty_of(l)->real, out);
}

static const struct ledger_ops faulty_ops = {
    .submit = submit_or_fail, .ask = ask_or_fail, .health = health_of_real};

void faulty_ledger_init(struct faulty_ledger *f, struct ledger *real, int fails) {
    *f = (struct faulty_ledger){
        .ledger.ops = &faulty_ops, .real = real, .fails = fails, .why = ERR_LEDGER_FAILED};
}
