// SPDX-License-Identifier: MIT
// Prints what the modes found. Times are in ns of one call (or pair): what K of them took, by K.

#include "output.h"

// The curve: shares 1 - 10^(-i/8), up to one in a million.
#define CURVE_POINTS 49

static const double shares[] = {0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999};
static const double bounds_ns[] = {100, 1000, 10000, 100000};
static const char *const series_names[SERIES_COUNT] = {"malloc", "free", "both"};

static double scale(const struct output *output, unsigned unit) {
    return output->timer.ns_per_tick / (double)unit;
}

// `floor` is the floor's histogram of the same calls, NULL for the floor itself.
static void json_series(double ns, const struct series *series, const struct histogram *floor,
                        uint64_t overhead) {
    const struct histogram *const h = &series->total;
    printf("\"count\":%" PRIu64 ",\"mean\":%.5g,\"max\":%.5g,\"quantiles\":[", h->total,
           histogram_mean(h) * ns, (double)h->worst * ns);
    for (size_t i = 0; i < BENCH_COUNT(shares); i++) {
        printf("%s%.5g", i == 0 ? "" : ",", (double)histogram_quantile(h, shares[i]) * ns);
    }
    printf("],\"ppm\":[");
    for (size_t i = 0; i < BENCH_COUNT(bounds_ns); i++) {
        printf("%s%.5g", i == 0 ? "" : ",", histogram_ppm(h, bounds_ns[i] / ns));
    }
    for (size_t i = 0; floor != NULL && i < BENCH_COUNT(shares); i++) {
        printf("%s%.5g", i == 0 ? "],\"machine\":[" : ",",
               (double)histogram_machine(floor, h, shares[i], overhead) * ns);
    }
    printf("],\"drift\":%.4g,\"worst_window\":%.4g", series_drift(series),
           series_worst_window(series));
}

static void json_curve(double ns, const struct histogram *h) {
    double beyond = 1;
    printf(",\"curve\":[");
    for (size_t i = 0; i < CURVE_POINTS; i++) {
        printf("%s%.4g", i == 0 ? "" : ",", (double)histogram_quantile(h, 1 - beyond) * ns);
        beyond *= 0.749894209332455827; // 10^(-1/8)
    }
    printf("]");
}

static void json_recorder(const struct output *output, const struct mode *mode,
                          const struct recorder *recorder, const struct recorder *floor) {
    const double ns = scale(output, mode->unit);
    for (size_t i = 0; i < SERIES_COUNT; i++) {
        const struct series *const series = &recorder->series[i];
        if (series->total.total == 0) {
            continue;
        }
        printf("{\"row\":\"times\",\"mode\":\"%s\",\"size\":%zu,\"unit\":%u,\"threads\":%u,"
               "\"subject\":\"%s\",\"call\":\"%s\",\"faults\":%" PRIu64 ",\"switches\":%" PRIu64
               ",\"waits\":%" PRIu64 ",",
               mode->name, mode->size, mode->unit, mode->thread_count,
               floor == NULL ? "floor" : "malloc", series_names[i], recorder->faults,
               recorder->switches, recorder->waits);
        json_series(ns, series, floor == NULL ? NULL : &floor->series[i].total, recorder->overhead);
        if (i == SERIES_BOTH) {
            json_curve(ns, &series->total);
        }
        printf("}\n");
    }
}

static void text_recorder(const struct output *output, const struct mode *mode,
                          const struct recorder *recorder, const char *subject) {
    const double ns = scale(output, mode->unit);
    for (size_t i = 0; i < SERIES_COUNT; i++) {
        const struct series *const series = &recorder->series[i];
        const struct histogram *const h = &series->total;
        if (h->total == 0) {
            continue;
        }
        printf("%-12s %-6s %-6s %9" PRIu64, mode->name, subject, series_names[i], h->total);
        for (size_t at = 0; at < BENCH_COUNT(shares); at++) {
            printf(" %8.4g", (double)histogram_quantile(h, shares[at]) * ns);
        }
        const double middle = (double)histogram_quantile(h, 0.5);
        printf(" %9.5g %6.4g", (double)h->worst * ns,
               middle > 0 ? (double)histogram_quantile(h, 0.999) / middle : 0);
        for (size_t at = 0; at < BENCH_COUNT(bounds_ns); at++) {
            if (mode->unit == 1) {
                printf(" %8.4g", histogram_ppm(h, bounds_ns[at] / ns));
            } else {
                printf(" %8s", "-");
            }
        }
        printf(" %5.2f\n", series_drift(series));
    }
}

static void text_head(struct output *output) {
    if (output->headed) {
        return;
    }
    output->headed = true;
    printf("%-12s %-6s %-6s %9s %8s %8s %8s %8s %8s %8s %9s %6s %8s %8s %8s %8s %5s\n", "mode",
           "of", "call", "count", "p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "max", "/p50",
           ">=100ns", ">=1us", ">=10us", ">=100us", "drift");
}

void output_begin(struct output *output, const struct machine *machine) {
    const struct timer *const timer = &output->timer;
    if (output->json) {
        printf("{\"row\":\"machine\",\"isolated\":\"%s\",\"nohz_full\":\"%s\","
               "\"clocksource\":\"%s\",\"rt_runtime_us\":%ld,\"load\":%.2f,\"pinned\":%d,"
               "\"on_isolated\":%s,\"fifo\":%s,\"processors\":%zu}\n",
               machine->isolated, machine->nohz_full, machine->clocksource, machine->rt_runtime_us,
               machine->load, machine->pinned, machine->on_isolated ? "true" : "false",
               machine->fifo ? "true" : "false", machine->processor_count);
        printf("{\"row\":\"timer\",\"source\":\"" TIMER_SOURCE "\",\"ns_per_tick\":%.6g,"
               "\"least_ns\":%.4g,\"overhead_ns\":%.4g,\"typical_ns\":%.4g,\"step_ns\":%.4g}\n",
               timer->ns_per_tick, (double)timer->least * timer->ns_per_tick,
               (double)timer->overhead * timer->ns_per_tick,
               (double)timer->typical * timer->ns_per_tick,
               (double)timer->step * timer->ns_per_tick);
        return;
    }
    printf("timer " TIMER_SOURCE ": %.1f ns an empty pair of reads (least %.1f, median %.1f), taken "
           "off; its step is %.2f ns; 1 tick = %.4f ns\n",
           (double)timer->overhead * timer->ns_per_tick, (double)timer->least * timer->ns_per_tick,
           (double)timer->typical * timer->ns_per_tick, (double)timer->step * timer->ns_per_tick,
           timer->ns_per_tick);
    printf("processor %d of %zu, isolated: %s, nohz_full: %s, SCHED_FIFO: %s, load %.2f, clock "
           "%s\n",
           machine->pinned, machine->processor_count,
           machine->isolated[0] == '\0' ? "none" : machine->isolated,
           machine->nohz_full[0] == '\0' ? "none" : machine->nohz_full,
           machine->fifo ? "yes" : "no", machine->load, machine->clocksource);
    if (!machine->on_isolated) {
        printf("not an isolated processor: what the floor rows show is the machine's, and is in "
               "every row (docs/method/latency.md)\n");
    }
}

void output_mode(struct output *output, const struct mode *mode,
                 const struct mode_result *result) {
    const struct recorder *const recorders[] = {result->floor, result->allocator};
    static const char *const subjects[] = {"floor", "malloc"};
    for (size_t i = 0; i < 2; i++) {
        if (output->json) {
            json_recorder(output, mode, recorders[i], i == 0 ? NULL : result->floor);
        } else {
            text_head(output);
            text_recorder(output, mode, recorders[i], subjects[i]);
        }
    }
    fflush(stdout);
}

void output_startup(struct output *output, const struct startup_result *result) {
    const double ns = output->timer.ns_per_tick;
    const struct histogram *const h = &result->calls;
    if (!output->json) {
        printf("startup: main after %.3f ms, first malloc %.1f us, %d blocks of %d B in %.2f ms "
               "(p99.99 %.0f ns, max %.0f ns)\n",
               (double)result->ready_ns / 1e6, (double)result->first_ns / 1e3, PROCESS_FILL_BLOCKS,
               PROCESS_FILL_BYTES, (double)result->fill_ns / 1e6,
               (double)histogram_quantile(h, 0.9999) * ns, (double)h->worst * ns);
        return;
    }
    printf("{\"row\":\"startup\",\"ready_us\":%.5g,\"first_ns\":%" PRIu64
           ",\"fill_ms\":%.5g,\"fill_p9999_ns\":%.5g,\"fill_max_ns\":%.5g}\n",
           (double)result->ready_ns / 1e3, result->first_ns, (double)result->fill_ns / 1e6,
           (double)histogram_quantile(h, 0.9999) * ns, (double)h->worst * ns);
}

void output_memory(struct output *output, size_t size, const struct memory_result *result) {
    const double asked = (double)result->asked_bytes;
    const double overhead = 100 * ((double)result->live_bytes / asked - 1);
    const double kept = 100 * (double)result->kept_bytes / asked;
    printf(output->json ? "{\"row\":\"memory\",\"size\":%zu,\"overhead_percent\":%.4g,"
                          "\"kept_percent\":%.4g}\n"
                        : "memory: blocks of %4zu B: RSS %.2f %% over what was asked for; %.2f %% "
                          "still there after all were freed\n",
           size, overhead, kept);
    fflush(stdout);
}

void output_end(struct output *output, uint64_t stolen_ms) {
    printf(output->json ? "{\"row\":\"end\",\"stolen_ms\":%" PRIu64 "}\n"
                        : "the hypervisor took %" PRIu64 " ms of this run\n",
           stolen_ms);
}
