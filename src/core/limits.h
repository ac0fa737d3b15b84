/*
 * limits: the bounds of everything. A number that can be set has its range here, once;
 * configuration, JSON and the docs refer to it.
 */
#ifndef ADMITONE_CORE_LIMITS_H
#define ADMITONE_CORE_LIMITS_H

#define EVENT_TYPE_BYTES_MAX 32
#define EVENT_ID_BYTES_MAX 64
#define EVENT_TITLE_BYTES_MAX 200
#define EVENT_SECTIONS_MAX 200
#define USER_ID_BYTES_MAX 64
#define SECTION_ID_BYTES_MAX 32
#define SECTION_NAME_BYTES_MAX 100
#define SECTION_CAPACITY_MAX 1000000
/* Seats of all sections of an event; and of all events, as limits.seats may set it. With the hot
 * store in memory a seat takes 12 bytes, 1.4 of them from the moment when it is configured and the
 * rest when seats are sold; in Redis one byte. */
#define EVENT_CAPACITY_MAX 5000000
#define SERVER_CAPACITY_MAX 1000000000
#define PRICE_MAX INT64_C(1000000000000)

#define MAX_WAITING_MAX 10000000
#define MAX_ACTIVE_MAX 1000000
#define ENTRY_BATCH_MAX 100000
#define ENTRY_INTERVAL_S_MAX 3600
#define ACTIVE_TTL_S_MAX 86400
#define GRACE_S_MAX 86400
#define TOKEN_TTL_S_MAX 2592000
#define HOLD_S_MAX 86400
#define PER_USER_MAX 1000
#define REHOLD_S_MAX 3600
#define REHOLD_S_DEFAULT 60
#define HOLDS_PER_STAY_MAX 1000
#define CONFIRMATION_LIFE_S_MAX 600

/* Of an event's waiting room. PAGE_BYTES_MAX is that of its settings together, as compact JSON. */
#define PAGE_NAME_CHARS_MAX 60
#define PAGE_LOGO_BYTES_MAX 500
#define PAGE_LANGUAGES_MAX 20
#define PAGE_TEXTS_MAX 200 /* of one language */
#define PAGE_TEXT_KEY_BYTES_MAX 64
#define PAGE_TEXT_CHARS_MAX 1000
#define PAGE_BYTES_MAX 16384
#define RETURN_HOSTS_MAX 16
#define RETURN_HOST_BYTES_MAX 259 /* a name of 253 and a port */
#define RETURN_URL_BYTES_MAX 2000
#define NOTICE_CHARS_MAX 500

#define TOP_MAX 100

/* Numbers that only grow, also over restarts, are epoch × 2^EPOCH_COUNT_BITS + a count, and fit 63
 * bits: a trillion between two starts, and eight million starts. */
#define EPOCH_COUNT_BITS 40
#define EPOCH_MAX 8388607

#endif
