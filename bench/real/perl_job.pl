# SPDX-License-Identifier: MIT
# Perl as an allocator sees it: hashes, arrays of arrays, strings grown and split, a sort.
#
# Source   own script.
# Checks   dies on any wrong result.

use strict;
use warnings;

my $state = 1;
sub rnd { $state = $state * 48271 % 2147483647; return $state % $_[0]; }

my (%count, @records);
for my $i (1 .. 160000) {
    my $name = 'user' . rnd(30000) . '-' . ('x' x rnd(30));
    $count{$name}++;
    push @records, { id => $i, name => $name, parts => [split /-/, $name], score => rnd(1000) };
    @records = @records[40000 .. $#records] if @records > 80000;
}

my @sorted = sort { $a->{score} <=> $b->{score} || $a->{name} cmp $b->{name} } @records;
die 'sort' unless $sorted[0]{score} <= $sorted[-1]{score} && @sorted == @records;

my $text = join "\n", map { "$_=$count{$_}" } sort keys %count;
my $sum = 0;
$sum += $1 while $text =~ /=(\d+)/g;
die "sum $sum" unless $sum == 160000;

my $document = '';
$document .= sprintf '<%s score="%d">%s</%s>', 'p', $_->{score}, $_->{name}, 'p' for @sorted;
my @found = $document =~ /<p score="(\d+)">([^<]+)</g;
die 'found' unless @found == 2 * @sorted;

my %index;
push @{ $index{ substr $_->{name}, 0, 6 } }, $_ for @sorted;
my $total = 0;
$total += @{$_} for values %index;
die 'index' unless $total == @sorted;
