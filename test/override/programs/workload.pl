# SPDX-License-Identifier: MIT
# perl: hashes, strings, regular expressions, sorting, eval, interpreters cloned for threads, fork.
use strict;
use warnings;
use threads;
use threads::shared;
use Digest::SHA qw(sha256_hex);
use Storable qw(freeze thaw);

my $scale = $ARGV[0] // 1;

sub work {
    my ($seed) = @_;
    my $state = $seed;
    my $next = sub { $state = ($state * 1103515245 + 12345) & 0x7fffffff; return $state >> 8; };
    my %live;
    for my $i (1 .. 40000 * $scale) {
        my $key = $next->() % 3000;
        if (exists $live{$key} && $next->() % 3 == 0) {
            delete $live{$key};
        } else {
            push @{ $live{$key} }, "v$i-" . ('x' x ($next->() % 120));
        }
    }
    my $text = join("\n", map { "$_=" . join(',', @{ $live{$_} }) } sort { $a <=> $b } keys %live);
    my $copy = thaw(freeze(\%live));
    die "thaw" unless keys %$copy == keys %live;
    (my $changed = $text) =~ s/x{3,5}(\d*)/<$1>/g;
    my @words = split /[,=\n]/, $changed;
    my $grown = '';
    $grown .= $_ for @words;
    my $code = eval "sub { return '" . ('y' x 5000) . "' . shift }";
    return sha256_hex($text . $changed . $grown . $code->($seed) . sprintf('%08d' x 50, (1) x 50));
}

my @threads = map { my $seed = $_; threads->create(sub { work($seed) }) } 1 .. 4;
print $_->join(), "\n" for @threads;
for my $seed (5 .. 6) {
    pipe(my $reader, my $writer) or die;
    my $pid = fork() // die;
    if ($pid == 0) { print $writer work($seed); close $writer; exit 0; }
    close $writer;
    print scalar(<$reader>), "\n";
    waitpid($pid, 0);
    die "child: $?" if $?;
}
print work(7), "\ndone\n";
