/*
 * services: a real Redis, PostgreSQL and Kafka, private to the test program, by scripts/services.
 * They are started once per program, and end with it, however it ends.
 *
 * One thread. If a server does not start, the running test fails.
 */
#ifndef ADMITONE_TEST_SERVICES_H
#define ADMITONE_TEST_SERVICES_H

#include <sys/types.h>

#define SERVICE_REDIS 1U
#define SERVICE_POSTGRES 2U /* without fsync */
#define SERVICE_SENTINEL 4U /* three Sentinels over a separate master and replica, named "main" */
#define SERVICE_KAFKA 8U    /* one broker; it has no topics and creates none by itself */

struct services {
    char redis_url[256];
    int redis_port;
    pid_t redis_pid;
    char postgres_url[256]; /* of a role that may create databases */
    int postgres_port;
    pid_t postgres_pid;
    char sentinel_url[256];
    pid_t sentinel_master_pid; /* of those that were it when they were started */
    pid_t sentinel_replica_pid;
    char kafka_url[256];
    int kafka_port;
    pid_t kafka_pid;
    char folder[256]; /* of the servers; "" when none was started */
};

/* Starts the servers in `what` and waits until they answer. Servers that run are left alone; one
 * that was stopped or killed is started again on its port, with its stored data (all of
 * PostgreSQL's and Kafka's, the saved data of Redis). Returns the same struct every time. */
const struct services *services_start(unsigned what);

/* The same, but does not look whether servers that it has started still run: this takes no time. */
const struct services *services_get(unsigned what);

/* Kills Redis, as a crash does, and waits until it has ended: services_start starts it again. */
void services_kill_redis(void);

/* Stops the servers in `what`, in order. services_start has started them. */
void services_stop(unsigned what);

#endif
