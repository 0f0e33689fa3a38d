-- SPDX-License-Identifier: MIT
-- Lua as an allocator sees it: tables, strings and closures made and collected without end.
--
-- Source   own script; binary trees after the GC benchmark of H. Boehm (GCBench), from its description.
-- Checks   asserts on every result.

local function make_tree(depth)
    if depth == 0 then return {} end
    return { left = make_tree(depth - 1), right = make_tree(depth - 1), depth = depth }
end

local function count(tree)
    if not tree.left then return 1 end
    return 1 + count(tree.left) + count(tree.right)
end

local kept = make_tree(16)
for _ = 1, 24 do
    assert(count(make_tree(13)) == 16383)
end

local state = 1
local function random(limit)
    state = (state * 48271) % 2147483647
    return state % limit
end

local words = {}
for i = 1, 150000 do
    local word = "word" .. random(20000) .. string.rep("x", random(24))
    words[word] = (words[word] or 0) + 1
    if i % 1000 == 0 then words["word" .. random(20000)] = nil end
end

local lines = {}
for word, times in pairs(words) do
    lines[#lines + 1] = string.format("%s=%d", word, times)
end
table.sort(lines)
local text = table.concat(lines, "\n")
local seen = 0
for key, value in text:gmatch("([^=\n]+)=(%d+)") do
    assert(words[key] == tonumber(value))
    seen = seen + 1
end
assert(seen == #lines)

local queue = {}
for i = 1, 400000 do
    local payload = { id = i, name = "n" .. i }
    queue[#queue + 1] = function() return payload.id + #payload.name end
    if #queue > 5000 then
        assert(queue[1]() > 0)
        queue = table.move(queue, 2500, #queue, 1, {})
    end
end
assert(count(kept) == 131071)
