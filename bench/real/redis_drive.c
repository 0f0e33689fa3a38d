// SPDX-License-Identifier: MIT
// Runs a redis-server on a private socket, drives it with redis-benchmark, shuts it down. Only the
// server carries the allocator under test: redis-benchmark is started without LD_PRELOAD.
//
// Source   redis-server and redis-benchmark as installed; the mix of commands is ours.
// Owns     a temporary directory with the socket; nothing is saved, no port is opened.
// Checks   both programs end with status 0.
//
// Without LD_PRELOAD the server is started with libc.so.6 preloaded: Debian's redis-server is linked
// with jemalloc, which would otherwise stand in the row of glibc.

#include "common.h"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

extern char **environ;

static char directory[] = "/tmp/mallow-bench-redis-XXXXXX";
static char socket_path[sizeof directory + 8];

static int run_connect(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, sizeof socket_path);
    const int end = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (end >= 0 && connect(end, (struct sockaddr *)&address, sizeof address) == 0) {
        return end;
    }
    if (end >= 0) {
        close(end);
    }
    return -1;
}

static pid_t run_program(char *const *arguments) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    pid_t child;
    const int error = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error == ENOENT) {
        fprintf(stderr, "skip: %s is not installed (apt-get install redis-server redis-tools)\n",
                arguments[0]);
        exit(77);
    }
    if (error != 0) {
        bench_fail("%s: %s", arguments[0], strerror(error));
    }
    return child;
}

static void clean_up(void) {
    unlink(socket_path);
    rmdir(directory);
}

static pid_t start_server(void) {
    char *const arguments[] = {"redis-server",
                               "--port",
                               "0",
                               "--unixsocket",
                               socket_path,
                               "--save",
                               "",
                               "--appendonly",
                               "no",
                               "--daemonize",
                               "no",
                               "--logfile",
                               "/dev/null",
                               "--dir",
                               directory,
                               "--databases",
                               "1",
                               NULL};
    const char *const preload = getenv("LD_PRELOAD");
    if (preload == NULL || preload[0] == '\0') {
        setenv("LD_PRELOAD", "libc.so.6", 1);
    }
    const pid_t server = run_program(arguments);
    unsetenv("LD_PRELOAD");
    for (int tries = 0; tries < 1000; tries++) {
        const int end = run_connect();
        if (end >= 0) {
            close(end);
            return server;
        }
        if (waitpid(server, NULL, WNOHANG) != 0) {
            bench_fail("redis-server did not start");
        }
        bench_sleep_ms(10);
    }
    kill(server, SIGKILL);
    bench_fail("redis-server did not open its socket");
}

static bool drive(uint64_t requests, uint64_t keys, uint64_t size) {
    char request_text[24], key_text[24], size_text[24];
    snprintf(request_text, sizeof request_text, "%" PRIu64, requests);
    snprintf(key_text, sizeof key_text, "%" PRIu64, keys);
    snprintf(size_text, sizeof size_text, "%" PRIu64, size);
    char *const arguments[] = {"redis-benchmark",
                               "-s",
                               socket_path,
                               "-q",
                               "-n",
                               request_text,
                               "-r",
                               key_text,
                               "-d",
                               size_text,
                               "-P",
                               "16",
                               "-c",
                               "20",
                               "-t",
                               "set,get,incr,lpush,rpop,sadd,hset,spop,zadd,lrange_100,mset",
                               NULL};
    int status = 1;
    const pid_t client = run_program(arguments);
    return waitpid(client, &status, 0) == client && status == 0;
}

int main(int argc, char **argv) {
    uint64_t requests = 60000;
    uint64_t keys = 50000;
    uint64_t size = 200;
    const struct bench_option table[] = {
        {"requests", &requests, "requests of each kind"},
        {"keys", &keys, "different keys"},
        {"size", &size, "bytes of a value"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (mkdtemp(directory) == NULL) {
        bench_fail("%s: %s", directory, strerror(errno));
    }
    snprintf(socket_path, sizeof socket_path, "%s/socket", directory);
    atexit(clean_up);

    const pid_t server = start_server();
    const bool driven = drive(requests, keys, size);
    const int end = run_connect();
    static const char farewell[] = "SHUTDOWN NOSAVE\r\n";
    if (end < 0 || write(end, farewell, sizeof farewell - 1) < 0) {
        kill(server, SIGKILL);
    }
    struct rusage usage;
    int status = 1;
    if (wait4(server, &status, 0, &usage) != server || status != 0 || !driven) {
        bench_fail("redis-server ended with status %d, redis-benchmark %s", status,
                   driven ? "well" : "badly");
    }
    const double user = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6;
    const double system = (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
    printf("server: user %.2f s, system %.2f s, peak RSS %.1f MiB\n", user, system,
           bench_mb((uint64_t)usage.ru_maxrss * BENCH_KIB));
    bench_score(user, "s_server_user");
    return 0;
}
