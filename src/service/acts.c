/* Notes in the audit trail. */
#include "service/acts.h"

#include "base/clock.h"
#include "base/list.h"

static void acts_on_written(struct task *task) {
    struct act *a = CONTAINER_OF(task, struct act, record.record.task);
    a->done(a, a->record.record.result);
}

void acts_note(struct ledger *ledger, struct act *a) {
    a->record.record.kind = LEDGER_ACT;
    a->record.record.task.run = acts_on_written;
    a->record.now_ms = clock_wall_ms();
    enum err refused = ledger_submit(ledger, &a->record.record);
    if (refused != ERR_OK) a->done(a, refused);
}
