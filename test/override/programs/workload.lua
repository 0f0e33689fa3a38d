-- SPDX-License-Identifier: MIT
-- lua: every block is grown, shrunk and freed by realloc; tables, strings, closures, coroutines.
local scale = tonumber(arg[1] or 1)
local state = 42
local function next_number(limit)
    state = (state * 1103515245 + 12345) % 2147483648
    return (state >> 8) % limit
end

local sum = 0
local function mix(text)
    for i = 1, #text, 7 do sum = (sum * 31 + text:byte(i)) % 4294967296 end
end

local live = {}
for i = 1, 300000 * scale do
    local key = next_number(5000)
    if live[key] and next_number(3) == 0 then
        live[key] = nil
    else
        live[key] = { i, ("v"):rep(next_number(150)), key = key, f = function() return i + key end }
    end
    if i % 50000 == 0 then collectgarbage(i % 100000 == 0 and "generational" or "incremental") end
end
for key = 0, 4999 do
    local value = live[key]
    if value then mix(("%d:%d:%s:%d"):format(key, value[1], value[2], value.f())) end
end

local function tree(depth) return depth == 0 and {} or { tree(depth - 1), tree(depth - 1) } end
local function count(node) return node[1] and 1 + count(node[1]) + count(node[2]) or 1 end
for depth = 4, 15 do mix(tostring(count(tree(depth)))) end

local parts = {}
for i = 1, 50000 * scale do parts[#parts + 1] = ("%x"):format(i * 2654435761 % 4294967296) end
local text = table.concat(parts, " ")
mix(text:gsub("%d+", function(d) return "<" .. d .. ">" end))
table.sort(parts)
mix(table.concat(parts))
local producers = {}
for i = 1, 2000 do
    producers[i] = coroutine.wrap(function()
        for k = 1, 20 do coroutine.yield(("c"):rep(k) .. i) end
    end)
end
for k = 1, 20 do for i = 1, 2000 do mix(producers[i]()) end end
producers, live, parts = nil, nil, nil
collectgarbage()
assert(collectgarbage("count") < 8 * 1024 * scale, "garbage was kept")
print(sum)
print("done")
