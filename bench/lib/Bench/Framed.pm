package Bench::Framed;

# One large body as a plain file, and packed into frames of several sizes.
#
#   my $body = Bench::Framed->new($files, $programs, $kind, $size);   # bytes
#   my $name = $body->pack($frame);   # text64k.bin.zst; p/text64k.bin is a link
#   $body->bytes($first, $last);
#   $body->coded($name);                # path of a coded file
#   $body->ratio($name);
#
#   my $programs = Bench::Framed::compile($dir);   # {pack, decode}: paths
#
# Two kinds of data of 2:1 to 3:1: text, made of words, which is many short
# sequences to a decoder; and mixed, a third of whose pieces of 4 KiB is random
# and the others copies of those, which is few and long ones.  33 MB of it over
# and over: no frame and no window reaches back to where it came before.

use strict;
use warnings;

use FindBin ();

use Bench::Files ();

my $PERIOD = 33_333_333;
my $LEVEL = 3;

my %KIND = (text => \&Bench::Files::text, mixed => \&_mixed);

my %SOURCE = (
    pack   => "$FindBin::RealBin/../t/frames/pack.c",
    decode => "$FindBin::RealBin/lib/decode.c",
);


sub compile {
    my ($dir) = @_;

    my %programs;
    for my $name (sort keys %SOURCE) {
        $programs{$name} = "$dir/$name";
        system('gcc', '-std=gnu11', '-O2', '-Wall', '-Wextra', '-o',
               $programs{$name}, $SOURCE{$name}, '-lzstd') == 0
            or die "$SOURCE{$name} cannot be compiled\n";
    }

    return \%programs;
}


sub new {
    my ($class, $files, $programs, $kind, $size) = @_;

    my $self = bless { files => $files, programs => $programs,
                       kind => $kind, size => $size,
                       path => $files->plain_root . "/$kind" }, $class;
    my $text = ($KIND{$kind} // die "no data named $kind\n")->($PERIOD);

    open(my $fh, '>:raw', $self->{path}) or die "$self->{path}: $!\n";
    for (my $left = $size; $left > 0; $left -= length $text) {
        print {$fh} $left < length $text ? substr($text, 0, $left) : $text
            or die "$self->{path}: $!\n";
    }
    close($fh) or die "$self->{path}: $!\n";

    return $self;
}


# a copy is of what lies in the same 64 KiB, so that small frames have it
sub _mixed {
    my ($size) = @_;

    my ($piece, $pieces) = (4 << 10, 16);
    my $data = '';

    srand(1);
    while (length $data < $size) {
        my @random;
        for my $i (0 .. $pieces - 1) {
            push @random, Bench::Files::random($piece) if $i % 3 == 0;
            $data .= $random[$i % 3 ? rand @random : -1];
        }
    }

    return substr($data, 0, $size);
}


sub pack {
    my ($self, $frame) = @_;

    my $name = $self->{kind} . Bench::Files::size_name($frame) . '.bin';
    my $plain = $self->{files}->plain_root . "/$name";
    my $coded = $self->coded($name);
    my $pid = fork() // die "fork: $!\n";

    if ($pid == 0) {
        open(STDIN, '<', $self->{path}) or die "$self->{path}: $!\n";
        open(STDOUT, '>', $coded) or die "$coded: $!\n";
        exec { $self->{programs}{pack} } 'pack', $frame, $LEVEL, 'sizes',
            'checksums' or die "pack: $!\n";
    }
    waitpid($pid, 0);
    die "pack failed\n" if $?;

    link $self->{path}, $plain or die "link $plain: $!\n";

    return $name;
}


sub coded { return $_[0]{files}->coded_root . "/$_[1].zst" }


sub ratio {
    my ($self, $name) = @_;

    return $self->{size} / -s $self->coded($name);
}


sub bytes {
    my ($self, $first, $last) = @_;

    my $n = $last - $first + 1;

    open(my $fh, '<:raw', $self->{path}) or die "$self->{path}: $!\n";
    seek($fh, $first, 0) or die "$self->{path}: $!\n";
    read($fh, my $bytes, $n) == $n or die "$self->{path}: $!\n";

    return $bytes;
}


1;
