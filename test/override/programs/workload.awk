# SPDX-License-Identifier: MIT
# awk: associative arrays, string building, regular expressions, sorting. Its argument is the scale.
function step() { state = (state * 69069 + 1) % 2147483648; return int(state / 256) }
BEGIN {
    scale = ARGV[1] + 0; state = 7
    for (i = 1; i <= 200000 * scale; i++) {
        key = step() % 4000
        if ((key in live) && step() % 3 == 0) delete live[key]
        else live[key] = live[key] (i % 10) substr("abcdefghijklmnopqrstuvwxyz", 1, step() % 26)
    }
    n = asorti(live, order, "@ind_num_asc")
    for (i = 1; i <= n; i++) {
        text = live[order[i]]; total += length(text); gsub(/[a-e]+/, "<&>", text)
        changed += length(text); m = split(text, parts, /</); pieces += m
    }
    print n, total, changed, pieces
    for (i = 0; i < 50000 * scale; i++) grown = grown sprintf("%05x", i)
    print length(grown), match(grown, /0c34f/)
    print "done"
}
