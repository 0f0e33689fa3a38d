// SPDX-License-Identifier: MIT
// A world simulation as games have it: entities with components behind pointers, a spatial grid, an
// event queue of closures, names and inventories in std containers; things are born and die in every
// frame, and the frame's scratch data goes at its end.
//
// Source   own program.
// Checks   entities born minus died equals entities alive; the checksum depends on the seed alone.

#include "common.h"

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

struct item {
    std::string name;
    int worth;
};

struct entity {
    uint64_t id = 0;
    std::string name;
    int x = 0, y = 0, health = 100;
    std::vector<std::shared_ptr<item>> inventory;
    std::list<std::pair<int, int>> path;
    std::set<uint64_t> friends;
};

constexpr int map_side = 256;
constexpr int cell_side = 16;

class world {
  public:
    explicit world(uint64_t seed_given) : seed(seed_given) {
    }

    uint64_t born = 0, died = 0, checksum = 0;

    void frame(uint64_t target) {
        std::unordered_map<int, std::vector<entity *>> grid;
        for (auto &[id, body] : bodies) {
            move(*body);
            grid[cell_of(*body)].push_back(body.get());
        }
        for (auto &[cell, inhabitants] : grid) {
            meet(inhabitants);
        }
        while (!events.empty()) {
            events.front()();
            events.pop_front();
        }
        while (bodies.size() < target) {
            spawn();
        }
        std::map<std::string, int> report; // a frame's scratch data
        for (size_t i = 0; i < 200 && !bodies.empty(); i++) {
            const auto found = bodies.lower_bound(bench_below(&seed, next_id));
            if (found != bodies.end()) {
                report[found->second->name.substr(0, 6)] += found->second->health;
            }
        }
        for (const auto &line : report) {
            checksum = checksum * 31 + (uint64_t)line.second;
        }
    }

    size_t alive() const {
        return bodies.size();
    }

  private:
    std::map<uint64_t, std::unique_ptr<entity>> bodies;
    std::deque<std::function<void()>> events;
    uint64_t next_id = 0;
    uint64_t seed;

    int random(int limit) {
        return (int)bench_below(&seed, (uint64_t)limit);
    }

    static int cell_of(const entity &body) {
        return body.y / cell_side * (map_side / cell_side) + body.x / cell_side;
    }

    void spawn() {
        auto body = std::make_unique<entity>();
        body->id = next_id++;
        body->name = "creature-" + std::to_string(body->id) + std::string((size_t)random(24), 'z');
        body->x = random(map_side);
        body->y = random(map_side);
        for (int i = random(5); i > 0; i--) {
            body->inventory.push_back(
                std::make_shared<item>(item{"thing of " + body->name, random(1000)}));
        }
        bodies.emplace(body->id, std::move(body));
        born++;
    }

    void move(entity &body) {
        if (body.path.empty()) {
            int x = body.x, y = body.y;
            for (int i = 4 + random(12); i > 0; i--) {
                x = (x + map_side + random(3) - 1) % map_side;
                y = (y + map_side + random(3) - 1) % map_side;
                body.path.emplace_back(x, y);
            }
        }
        body.x = body.path.front().first;
        body.y = body.path.front().second;
        body.path.pop_front();
    }

    void meet(std::vector<entity *> &inhabitants) {
        for (size_t i = 1; i < inhabitants.size(); i++) {
            entity &one = *inhabitants[i - 1], &other = *inhabitants[i];
            const int what = random(16);
            if (what == 0) {
                one.friends.insert(other.id);
            } else if (what == 1 && !one.inventory.empty()) {
                other.inventory.push_back(one.inventory.back());
                one.inventory.pop_back();
            } else if (what == 2) {
                const uint64_t id = other.id, by = one.id;
                const std::string message = one.name + " hits " + other.name;
                events.emplace_back([this, id, by, message] { hit(id, by, message); });
            }
        }
    }

    void hit(uint64_t id, uint64_t by, const std::string &message) {
        const auto found = bodies.find(id);
        if (found == bodies.end()) {
            return;
        }
        checksum = checksum * 33 + message.size() + by;
        found->second->health -= 40;
        if (found->second->health <= 0) {
            bodies.erase(found);
            died++;
        }
    }
};

} // namespace

int main(int argc, char **argv) {
    uint64_t frames = 500;
    uint64_t entities = 24000;
    const struct bench_option table[] = {
        {"frames", &frames, "frames"},
        {"entities", &entities, "entities alive after each frame"},
    };
    BENCH_OPTIONS(argc, argv, table);

    const uint64_t start = bench_now_ns();
    uint64_t checksum = 0;
    {
        world simulated(17);
        for (uint64_t i = 0; i < frames; i++) {
            simulated.frame(entities);
        }
        if (simulated.born - simulated.died != simulated.alive()) {
            bench_fail("entities were lost");
        }
        printf("%" PRIu64 " born, %" PRIu64 " died, checksum %016" PRIx64 "\n", simulated.born,
               simulated.died, simulated.checksum);
        checksum = simulated.checksum;
    }
    bench_escape(&checksum);
    bench_score((double)(bench_now_ns() - start) / 1e6 / (double)frames, "ms/frame");
    return 0;
}
