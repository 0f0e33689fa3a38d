# SPDX-License-Identifier: MIT
# ruby: heap pages by posix_memalign, strings and arrays by malloc; compaction, threads, fork.
require 'digest/sha2' # not on first use: two threads at once would race
require 'json'
require 'zlib'

SCALE = (ARGV[0] || 1).to_i

def work(seed)
  state = seed
  step = -> { state = (state * 1_103_515_245 + 12_345) & 0x7fffffff; state >> 8 }
  live = {}
  (40_000 * SCALE).times do |i|
    key = step.call % 3000
    if live.key?(key) && step.call % 3 == 0
      live.delete(key)
    else
      text = 'v' * (step.call % 200)
      live[key] = { 'i' => i, 'text' => text, 'list' => Array.new(step.call % 9, i) }
    end
  end
  text = JSON.generate(live.sort.to_a)
  raise 'json' unless JSON.parse(text).length == live.length
  packed = Zlib::Deflate.deflate(text)
  raise 'zlib' unless Zlib::Inflate.inflate(packed) == text
  Digest::SHA256.hexdigest(packed + text.gsub(/v{3,7}/) { |m| m.length.to_s })
end

puts (1..4).map { |seed| Thread.new { work(seed) } }.map(&:value)
GC.start
GC.compact if GC.respond_to?(:compact)
reader, writer = IO.pipe
child = fork { writer.write(work(5)); writer.close }
writer.close
puts reader.read
Process.wait(child)
raise 'child' unless $?.success?
puts Digest::SHA256.hexdigest((1..20_000 * SCALE).inject(+'') { |text, i| text << i.to_s })
puts 'done'
