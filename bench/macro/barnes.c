// SPDX-License-Identifier: MIT
// N bodies under gravity by the Barnes-Hut tree: in every step the octree is built of malloc'd
// cells, walked for the forces, and freed.
//
// Source   J. Barnes, P. Hut: "A hierarchical O(N log N) force-calculation algorithm", Nature 324
//          (1986); the kernel of the "barnes" benchmark of the Hoard paper; own program.
// Checks   total momentum stays near zero; every cell is freed.

#include "common.h"

#include <math.h>

struct body {
    double position[3], velocity[3], force[3];
    double mass;
};

struct cell {
    struct cell *children[8];
    const struct body *body; // of a leaf
    double centre[3], half;  // of the cube
    double mass_centre[3], mass;
};

static uint64_t cell_count;

static struct cell *make_cell(const double centre[3], double half) {
    struct cell *const cell = bench_calloc(1, sizeof *cell);
    memcpy(cell->centre, centre, sizeof cell->centre);
    cell->half = half;
    cell_count++;
    return cell;
}

static unsigned octant(const struct cell *cell, const double position[3]) {
    return (position[0] > cell->centre[0] ? 1u : 0) | (position[1] > cell->centre[1] ? 2u : 0) |
           (position[2] > cell->centre[2] ? 4u : 0);
}

static struct cell **child_for(struct cell *cell, const struct body *body) {
    const unsigned index = octant(cell, body->position);
    if (cell->children[index] == NULL) {
        const double quarter = cell->half / 2;
        const double centre[3] = {
            cell->centre[0] + ((index & 1) != 0 ? quarter : -quarter),
            cell->centre[1] + ((index & 2) != 0 ? quarter : -quarter),
            cell->centre[2] + ((index & 4) != 0 ? quarter : -quarter),
        };
        cell->children[index] = make_cell(centre, quarter);
    }
    return &cell->children[index];
}

static void insert(struct cell *cell, const struct body *body, int depth) {
    const bool is_empty = cell->mass == 0;
    for (int axis = 0; axis < 3; axis++) {
        cell->mass_centre[axis] =
            (cell->mass_centre[axis] * cell->mass + body->position[axis] * body->mass) /
            (cell->mass + body->mass);
    }
    cell->mass += body->mass;
    if (is_empty) {
        cell->body = body;
        return;
    }
    if (depth > 48) {
        return; // two bodies in one place count as one
    }
    if (cell->body != NULL) {
        const struct body *const before = cell->body;
        cell->body = NULL;
        insert(*child_for(cell, before), before, depth + 1);
    }
    insert(*child_for(cell, body), body, depth + 1);
}

static void attract(const struct cell *cell, struct body *body, double opening) {
    double offset[3], square = 1e-4;
    for (int axis = 0; axis < 3; axis++) {
        offset[axis] = cell->mass_centre[axis] - body->position[axis];
        square += offset[axis] * offset[axis];
    }
    if (cell->body != NULL || 4 * cell->half * cell->half < opening * opening * square) {
        if (cell->body != body) {
            const double pull = cell->mass * body->mass / (square * sqrt(square));
            for (int axis = 0; axis < 3; axis++) {
                body->force[axis] += pull * offset[axis];
            }
        }
        return;
    }
    for (size_t i = 0; i < 8; i++) {
        if (cell->children[i] != NULL) {
            attract(cell->children[i], body, opening);
        }
    }
}

static void drop(struct cell *cell) {
    for (size_t i = 0; i < 8; i++) {
        if (cell->children[i] != NULL) {
            drop(cell->children[i]);
        }
    }
    free(cell);
    cell_count--;
}

static void step(struct body *bodies, uint64_t count, double opening) {
    const double origin[3] = {0, 0, 0};
    struct cell *const root = make_cell(origin, 64);
    for (uint64_t i = 0; i < count; i++) {
        insert(root, &bodies[i], 0);
        memset(bodies[i].force, 0, sizeof bodies[i].force);
    }
    for (uint64_t i = 0; i < count; i++) {
        attract(root, &bodies[i], opening);
        for (int axis = 0; axis < 3; axis++) {
            bodies[i].velocity[axis] += bodies[i].force[axis] / bodies[i].mass * 1e-3;
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        for (int axis = 0; axis < 3; axis++) {
            bodies[i].position[axis] += bodies[i].velocity[axis] * 1e-3;
        }
    }
    drop(root);
}

int main(int argc, char **argv) {
    uint64_t count = 100000;
    uint64_t steps = 4;
    const struct bench_option table[] = {
        {"bodies", &count, "bodies"},
        {"steps", &steps, "steps of time"},
    };
    BENCH_OPTIONS(argc, argv, table);

    struct body *const bodies = bench_calloc(count, sizeof *bodies);
    uint64_t seed = 11;
    for (uint64_t i = 0; i < count; i++) {
        bodies[i].mass = 1.0 / (double)count;
        for (int axis = 0; axis < 3; axis++) { // the sum of uniforms: denser in the middle
            double sum = 0;
            for (int k = 0; k < 6; k++) {
                sum += (double)(bench_random(&seed) >> 11) / 9007199254740992.0 - 0.5;
            }
            bodies[i].position[axis] = sum;
        }
    }
    const uint64_t start = bench_now_ns();
    for (uint64_t i = 0; i < steps; i++) {
        step(bodies, count, 0.9);
    }
    const double taken = (double)(bench_now_ns() - start) / 1e9;
    double momentum = 0;
    for (uint64_t i = 0; i < count; i++) {
        momentum += bodies[i].velocity[0] * bodies[i].mass;
    }
    if (cell_count != 0 || !(fabs(momentum) < 1e-3)) {
        bench_fail("%" PRIu64 " cells left, momentum %g", cell_count, momentum);
    }
    free(bodies);
    bench_score(taken, "s");
    return 0;
}
