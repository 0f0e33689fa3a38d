// SPDX-License-Identifier: MIT
// A key-value store, LevelDB or RocksDB: fill in random order, read at random from several threads,
// scan, overwrite, delete, compact. The library is loaded at run time, so that this program builds
// without its headers; Debian's packages libleveldb1d and librocksdb7.8 suffice.
//
// Source   own program on the libraries' documented C interface; the mix is that of their db_bench as
//          described (fillrandom, readrandom, readseq, overwrite).
// Owns     a temporary directory, destroyed at the end.
// Checks   every value read is the one written last.

#include "common.h"

#include <dlfcn.h>

// The functions used here have the same shape in both interfaces.
struct store {
    void *(*options_create)(void);
    void (*options_set_create_if_missing)(void *, unsigned char);
    void (*options_set_write_buffer_size)(void *, size_t);
    void (*options_set_compression)(void *, int);
    void *(*open)(const void *, const char *, char **);
    void (*close)(void *);
    void *(*writeoptions_create)(void);
    void *(*readoptions_create)(void);
    void (*put)(void *, const void *, const char *, size_t, const char *, size_t, char **);
    char *(*get)(void *, const void *, const char *, size_t, size_t *, char **);
    void (*delete)(void *, const void *, const char *, size_t, char **);
    void (*compact_range)(void *, const char *, size_t, const char *, size_t);
    void (*destroy_db)(const void *, const char *, char **);
    void *(*create_iterator)(void *, const void *);
    void (*iter_seek_to_first)(void *);
    unsigned char (*iter_valid)(const void *);
    void (*iter_next)(void *);
    const char *(*iter_value)(const void *, size_t *);
    void (*iter_destroy)(void *);
    void (*free)(void *);
};

struct reader {
    const struct store *store;
    void *database;
    uint64_t reads, keys, seed;
    uint64_t found;
};

static const char *const libraries[2][3] = {
    {"leveldb", "libleveldb.so.1d", "libleveldb.so"},
    {"rocksdb", "librocksdb.so.7.8", "librocksdb.so"},
};

static void *load(void *library, const char *prefix, const char *name) {
    char symbol[80];
    snprintf(symbol, sizeof symbol, "%s_%s", prefix, name);
    void *const found = dlsym(library, symbol);
    if (found == NULL) {
        bench_fail("%s is missing in the library", symbol);
    }
    return found;
}

static struct store load_store(const char *const names[3]) {
    void *library = dlopen(names[1], RTLD_NOW);
    library = library != NULL ? library : dlopen(names[2], RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr,
                "skip: lib%s is not installed (apt-get install libleveldb1d librocksdb7.8)\n",
                names[0]);
        exit(77);
    }
    struct store s;
#define LOAD(member) *(void **)&s.member = load(library, names[0], #member)
    LOAD(options_create);
    LOAD(options_set_create_if_missing);
    LOAD(options_set_write_buffer_size);
    LOAD(options_set_compression);
    LOAD(open);
    LOAD(close);
    LOAD(writeoptions_create);
    LOAD(readoptions_create);
    LOAD(put);
    LOAD(get);
    LOAD(delete);
    LOAD(compact_range);
    LOAD(destroy_db);
    LOAD(create_iterator);
    LOAD(iter_seek_to_first);
    LOAD(iter_valid);
    LOAD(iter_next);
    LOAD(iter_value);
    LOAD(iter_destroy);
    LOAD(free);
#undef LOAD
    return s;
}

static void must(const char *error) {
    if (error != NULL) {
        bench_fail("the store reports: %s", error);
    }
}

static size_t make_key(char key[32], uint64_t number) {
    return (size_t)snprintf(key, 32, "%016" PRIx64, number * UINT64_C(0x9e3779b97f4a7c15));
}

// A value tells its key's number and fills up with a letter; its length depends on the number.
static size_t make_value(char value[512], uint64_t number) {
    const size_t length = 40 + number * 7919 % 400;
    memset(value, 'a' + (int)(number % 26), length);
    memcpy(value, &number, sizeof number);
    return length;
}

static void fill(const struct store *store, void *database, uint64_t count, uint64_t keys,
                 uint64_t seed) {
    const void *const options = store->writeoptions_create();
    char key[32], value[512], *error = NULL;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t number = bench_below(&seed, keys);
        const size_t key_length = make_key(key, number);
        store->put(database, options, key, key_length, value, make_value(value, number), &error);
        must(error);
    }
}

static void *read_randomly(void *argument) {
    struct reader *const self = argument;
    const void *const options = self->store->readoptions_create();
    char key[32], *error = NULL;
    for (uint64_t i = 0; i < self->reads; i++) {
        const uint64_t number = bench_below(&self->seed, self->keys);
        size_t length = 0;
        const size_t key_length = make_key(key, number);
        char *const value =
            self->store->get(self->database, options, key, key_length, &length, &error);
        must(error);
        if (value != NULL) {
            uint64_t stored;
            memcpy(&stored, value, sizeof stored);
            if (stored != number || length != 40 + number * 7919 % 400) {
                bench_fail("a wrong value for key %" PRIu64, number);
            }
            self->found++;
            self->store->free(value);
        }
    }
    return NULL;
}

static uint64_t scan(const struct store *store, void *database) {
    void *const at = store->create_iterator(database, store->readoptions_create());
    uint64_t bytes = 0;
    for (store->iter_seek_to_first(at); store->iter_valid(at) != 0; store->iter_next(at)) {
        size_t length;
        store->iter_value(at, &length);
        bytes += length;
    }
    store->iter_destroy(at);
    return bytes;
}

static void thin_out(const struct store *store, void *database, uint64_t keys) {
    const void *const options = store->writeoptions_create();
    char key[32], *error = NULL;
    for (uint64_t number = 0; number < keys; number += 3) {
        const size_t length = make_key(key, number);
        store->delete(database, options, key, length, &error);
        must(error);
    }
}

int main(int argc, char **argv) {
    uint64_t which = 0;
    uint64_t threads = 2;
    uint64_t count = 200000;
    const struct bench_option table[] = {
        {"rocksdb", &which, "0: LevelDB, 1: RocksDB"},
        {"threads", &threads, "reading threads"},
        {"count", &count, "keys, writes and reads"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (threads == 0 || threads > BENCH_THREADS_MAX || which > 1 || count < 100) {
        bench_fail("threads must be 1 to %d, rocksdb 0 or 1", BENCH_THREADS_MAX);
    }

    const struct store store = load_store(libraries[which]);
    char in_memory[] = "/dev/shm/mallow-bench-kv-XXXXXX", on_disk[] = "/tmp/mallow-bench-kv-XXXXXX";
    char *const directory = access("/dev/shm", W_OK) == 0 ? in_memory : on_disk;
    if (mkdtemp(directory) == NULL) {
        bench_fail("%s: %s", directory, strerror(errno));
    }
    char *error = NULL;
    void *const options = store.options_create();
    store.options_set_create_if_missing(options, 1);
    store.options_set_write_buffer_size(options, 8 * BENCH_MIB);
    store.options_set_compression(options, 0);
    void *const database = store.open(options, directory, &error);
    must(error);

    const uint64_t start = bench_now_ns();
    static struct reader readers[BENCH_THREADS_MAX];
    uint64_t found = 0;
    fill(&store, database, count, count, 1);
    for (uint64_t i = 0; i < threads; i++) {
        readers[i] = (struct reader){&store, database, count * 2 / threads, count, i, 0};
    }
    bench_parallel(read_randomly, readers, sizeof readers[0], threads);
    for (uint64_t i = 0; i < threads; i++) {
        found += readers[i].found;
    }
    const uint64_t before = scan(&store, database);
    fill(&store, database, count / 2, count, 2);
    thin_out(&store, database, count);
    store.compact_range(database, NULL, 0, NULL, 0);
    const uint64_t after = scan(&store, database);
    if (found < count || after >= before) {
        bench_fail("%" PRIu64 " values found, %" PRIu64 " bytes before, %" PRIu64 " after", found,
                   before, after);
    }
    const double taken = (double)(bench_now_ns() - start) / 1e9;
    store.close(database);
    store.destroy_db(options, directory, &error);
    must(error);
    rmdir(directory);
    bench_score(taken, "s");
    return 0;
}
