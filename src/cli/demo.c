/* The demo events, and the commands to try that are printed with them. */
#include "cli/demo.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"

struct demo {
    struct events *events;
    struct event_change change;
    struct event *wanted;
    char path[EVENT_PATH_BYTES];
    size_t next;
    void (*done)(void *arg, enum err result);
    void *arg;
};

static const struct demo_event {
    struct event event;
    struct section sections[4];
} demo_events[] = {
    {.event = {.type = "CONCERT",
               .id = "1",
               .title = "Winter tour",
               .section_count = 4,
               .queue = {1000000, 100, 50, 1, 600, 300, 0},
               .hold_s = 300,
               .max_per_user = 4,
               .confirm_by = CONFIRM_BY_USER, /* there is no shop that is paid */
               .cancel_confirmed = true},
     .sections = {{.id = "A",
                   .name = "Floor A",
                   .capacity = 100,
                   .price = 150000,
                   .mode = SECTION_MODE_SLOT},
                  {.id = "B",
                   .name = "Floor B",
                   .capacity = 100,
                   .price = 120000,
                   .mode = SECTION_MODE_LOCK},
                  {.id = "C",
                   .name = "Balcony C",
                   .capacity = 300,
                   .price = 80000,
                   .mode = SECTION_MODE_ADAPTIVE},
                  {.id = "D",
                   .name = "Boxes D",
                   .capacity = 40,
                   .price = 200000,
                   .mode = SECTION_MODE_SEAT}}},
    {.event = {.type = "TIMEDEAL",
               .id = "123",
               .title = "Headphones at half price",
               .section_count = 1,
               .queue = {100000, 50, 20, 1, 300, 120, 0},
               .hold_s = 180,
               .max_per_user = 1,
               .confirm_by = CONFIRM_BY_USER,
               .cancel_confirmed = true},
     .sections = {{.id = "units",
                   .name = "Units",
                   .capacity = 100,
                   .price = 49900,
                   .mode = SECTION_MODE_SLOT}}},
};

static bool is_there(struct events *events, const struct event *e) {
    catalogue_read_lock(events->catalogue);
    bool there = catalogue_find(events->catalogue, str_of(e->type), str_of(e->id)) != NULL;
    catalogue_read_unlock(events->catalogue);
    return there;
}

static struct event *build(const struct demo_event *from) {
    struct event plain = from->event;
    struct section sections[4];
    memcpy(sections, from->sections, sizeof sections);
    plain.sections = sections;
    plain.state = EVENT_OPEN;
    plain.opens_at_ms = CLOCK_NONE_MS;
    plain.closes_at_ms = CLOCK_NONE_MS;
    plain.starts_at_ms = clock_wall_ms() + INT64_C(30) * 86400000;
    memcpy(plain.currency, "KRW", sizeof plain.currency);
    return event_copy(&plain);
}

static void demo_create_next(struct demo *d);

static void on_created(struct event_change *change, enum err result) {
    struct demo *d = CONTAINER_OF(change, struct demo, change);
    mem_free(change->put.stored);
    mem_free(d->wanted);
    if (result == ERR_OK) {
        demo_create_next(d);
        return;
    }
    d->done(d->arg, result);
    mem_free(d);
}

static void demo_create_next(struct demo *d) {
    size_t count = sizeof demo_events / sizeof demo_events[0];
    while (d->next < count && is_there(d->events, &demo_events[d->next].event)) d->next++;
    if (d->next == count) {
        d->done(d->arg, ERR_OK);
        mem_free(d);
        return;
    }
    const struct demo_event *from = &demo_events[d->next++];
    d->wanted = build(from);
    d->change = (struct event_change){
        .done = on_created,
        .put.wanted = d->wanted,
        .put.note = {STR("demo"), STR("event.put"),
                     event_path(str_of(from->event.type), str_of(from->event.id), d->path),
                     STR("{}")}};
    events_change(d->events, &d->change);
}

void demo_create(struct events *events, void (*done)(void *arg, enum err result), void *arg) {
    struct demo *d = mem_new(sizeof *d);
    d->events = events;
    d->done = done;
    d->arg = arg;
    demo_create_next(d);
}

/* One person takes a place. */
static void add_enter(struct buf *out, const struct demo_site *site, const char *user) {
    buf_addf(out, "  curl -s %s/queue/CONCERT/1/enter \\\n", site->url);
    if (site->auth == USERS_SIGNED)
        buf_addf(out, "       -H \"Authorization: Bearer $(cat %s)\" \\\n", site->admin_key_path);
    buf_add(out, STR("       -H 'Content-Type: application/json' -d "));
    if (site->auth == USERS_ANONYMOUS)
        buf_add(out, STR("'{}'\n"));
    else
        buf_addf(out, "'{\"userId\": \"%s\"}'\n", user);
}

static str enter_remark(enum users_auth auth) {
    switch (auth) {
    case USERS_TRUSTED:
        return STR("Ann is in at once, Ben has to wait:\n\n");
    case USERS_SIGNED:
        return STR(
            "Ann is in at once, Ben has to wait. (The admin key speaks for them here; users\n"
            "themselves need an assertion that the shop has signed.)\n\n");
    case USERS_ANONYMOUS:
        return STR("Each request without a cookie is a new user. The first one,\n"
                   "Ann, is in at once; the second, Ben, has to wait:\n\n");
    }
    assert(false && "no such way");
    return STR("");
}

void demo_tour(struct buf *out, const struct demo_site *site) {
    const char *url = site->url;
    buf_addf(out,
             "\nadmitone " ADMITONE_VERSION " is running, with two demo events.\n\n"
             "Open in a browser:\n\n"
             "  home        %s/\n"
             "  a concert   %s/e/CONCERT/1\n"
             "  a time deal %s/e/TIMEDEAL/123\n"
             "  admin       %s/admin      (asks for the admin key, the text in %s)\n\n"
             "To see a crowd wait, move and buy, start the crowd simulator on the admin page, and\n"
             "open a waiting room in a second window.\n\n"
             "For programs:\n\n"
             "  events      %s/events\n"
             "  metrics     %s/metrics\n"
             "  API         %s/openapi.json\n\n"
             "Or try this in another terminal. One at a time, so that there is a queue:\n\n"
             "  curl -s -X PATCH %s/admin/queue/CONCERT/1 \\\n"
             "       -H \"Authorization: Bearer $(cat %s)\" \\\n"
             "       -H 'Content-Type: application/json' -d '{\"maxActive\": 1}'\n\n",
             url, url, url, site->admin_url, site->admin_key_path, url, url, url, site->admin_url,
             site->admin_key_path);
    buf_add(out, enter_remark(site->auth));
    add_enter(out, site, "ann");
    add_enter(out, site, "ben");
    buf_addf(out,
             "\nBen listens, with his entryToken. Ann holds two seats, with hers:\n\n"
             "  curl -sN %s/queue/CONCERT/1/subscribe/TOKEN-OF-BEN &\n"
             "  curl -s %s/reservations -H 'Authorization: Bearer TOKEN-OF-ANN' \\\n"
             "       -H 'Content-Type: application/json' \\\n"
             "       -d '{\"eventType\": \"CONCERT\", \"eventId\": \"1\", \"section\": \"A\", "
             "\"quantity\": 2}'\n\n"
             "She buys them, with the id of that answer; her stay is over, and he is in:\n\n"
             "  curl -s -X POST %s/reservations/ID/confirm \\\n"
             "       -H 'Authorization: Bearer TOKEN-OF-ANN'\n\n"
             "Ctrl-C stops it.\n\n",
             url, url, url);
}
