// SPDX-License-Identifier: MIT
// A JSON parser that builds a tree of nodes, strings, vectors and maps, queries it, and drops it.
//
// Source   RFC 8259 for the format; own parser and own document generator.
// Checks   the sum of all numbers and the length of all strings equal what the generator wrote.

#include "common.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

struct value {
    enum class kind { null, boolean, number, text, list, object } is = kind::null;
    bool boolean = false;
    double number = 0;
    std::string text;
    std::vector<std::unique_ptr<value>> list;
    std::map<std::string, std::unique_ptr<value>> object;
};

struct totals {
    double numbers = 0;
    uint64_t text_bytes = 0;
    uint64_t nodes = 0;
};

class parser {
  public:
    explicit parser(const std::string &text) : at(text.c_str()) {
    }

    std::unique_ptr<value> parse() {
        auto made = std::make_unique<value>();
        skip();
        switch (*at) {
        case '{':
            object(*made);
            break;
        case '[':
            list(*made);
            break;
        case '"':
            made->is = value::kind::text;
            made->text = text();
            break;
        case 't':
            literal(*made, "true", value::kind::boolean);
            made->boolean = true;
            break;
        case 'f':
            literal(*made, "false", value::kind::boolean);
            break;
        case 'n':
            literal(*made, "null", value::kind::null);
            break;
        default:
            number(*made);
        }
        skip();
        return made;
    }

  private:
    const char *at;

    void skip() {
        while (*at == ' ' || *at == '\n') {
            at++;
        }
    }

    void expect(char wanted) {
        if (*at != wanted) {
            bench_fail("JSON: expected %c before %.20s", wanted, at);
        }
        at++;
    }

    void literal(value &into, const char *word, value::kind is) {
        into.is = is;
        while (*word != '\0') {
            expect(*word++);
        }
    }

    void number(value &into) {
        char *end = nullptr;
        into.is = value::kind::number;
        into.number = strtod(at, &end);
        if (end == at) {
            bench_fail("JSON: no value at %.20s", at);
        }
        at = end;
    }

    std::string text() {
        std::string result;
        expect('"');
        while (*at != '"') {
            if (*at == '\\') {
                at++;
            }
            result.push_back(*at++);
        }
        at++;
        return result;
    }

    void list(value &into) {
        into.is = value::kind::list;
        expect('[');
        for (skip(); *at != ']';) {
            into.list.push_back(parse());
            if (*at == ',') {
                at++;
            }
        }
        at++;
    }

    void object(value &into) {
        into.is = value::kind::object;
        expect('{');
        for (skip(); *at != '}'; skip()) {
            std::string key = text();
            skip();
            expect(':');
            into.object.emplace(std::move(key), parse());
            if (*at == ',') {
                at++;
            }
        }
        at++;
    }
};

void sum_up(const value &of, totals &into) {
    into.nodes++;
    into.numbers += of.number;
    into.text_bytes += of.text.size();
    for (const auto &item : of.list) {
        sum_up(*item, into);
    }
    for (const auto &entry : of.object) {
        into.text_bytes += entry.first.size();
        sum_up(*entry.second, into);
    }
}

// A document as web services send them: records with names, tags, nested positions.
std::string make_document(uint64_t records, totals &expected) {
    std::string text = "[";
    uint64_t seed = 9;
    const auto add_text = [&](const std::string &word, size_t counted) {
        text += '"' + word + '"';
        expected.text_bytes += counted;
    };
    const auto add_number = [&](const char *key, double number) {
        add_text(key, strlen(key));
        text += ": " + std::to_string(number) + ", ";
        expected.numbers += strtod(std::to_string(number).c_str(), nullptr);
    };
    for (uint64_t i = 0; i < records; i++) {
        text += i == 0 ? "{" : ",\n{";
        add_number("id", (double)i);
        add_number("weight", (double)bench_below(&seed, 1000000) / 64);
        add_text("name", 4);
        text += ": ";
        add_text(std::string(bench_between(&seed, 4, 60), 'x') + "\\\"", 0);
        expected.text_bytes += text.size() - text.rfind(": \"") - 3 - 2;
        text += ", ";
        add_text("tags", 4);
        text += ": [";
        for (uint64_t tag = bench_below(&seed, 8); tag > 0; tag--) {
            const std::string word(bench_between(&seed, 2, 20), 't');
            add_text(word, word.size());
            text += ", ";
        }
        text += "null, true], ";
        add_text("position", 8);
        text += ": {";
        add_number("x", (double)bench_below(&seed, 1000) / 8);
        add_number("y", (double)bench_below(&seed, 1000) / 8);
        text += "}}";
    }
    return text + "]";
}

} // namespace

int main(int argc, char **argv) {
    uint64_t records = 25000;
    uint64_t rounds = 12;
    const struct bench_option table[] = {
        {"records", &records, "records of the document"},
        {"rounds", &rounds, "times it is parsed and dropped"},
    };
    BENCH_OPTIONS(argc, argv, table);

    totals expected;
    const std::string document = make_document(records, expected);
    const uint64_t start = bench_now_ns();
    uint64_t nodes = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        const std::unique_ptr<value> tree = parser(document).parse();
        totals found;
        sum_up(*tree, found);
        nodes = found.nodes;
        const double off = found.numbers - expected.numbers;
        if (found.text_bytes != expected.text_bytes || off > 1e-3 || off < -1e-3) {
            bench_fail("the tree holds %" PRIu64 " bytes of text, the document %" PRIu64,
                       found.text_bytes, expected.text_bytes);
        }
    }
    const double taken = (double)(bench_now_ns() - start) / 1e9;
    printf("document %.1f MiB, %" PRIu64 " nodes\n", bench_mb(document.size()), nodes);
    bench_score(bench_mb(document.size()) * (double)rounds / taken, "MiB/s");
    return 0;
}
