#include "faulty_ledger.h"

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

static enum err submit_or_fail(struct ledger *l, struct ledger_record *r) {
    struct faulty_ledger *f = faulty_of(l);
    if (f->is_full) return ERR_OVERLOADED;
    return f->fails > 0 ? fail(f, &f->fails, r) : ledger_submit(f->real, r);
}

static enum err ask_or_fail(struct ledger *l, struct ledger_record *r) {
    struct faulty_ledger *f = faulty_of(l);
    if (f->is_full) return ERR_OVERLOADED;
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
