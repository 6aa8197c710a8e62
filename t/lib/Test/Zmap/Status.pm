package Test::Zmap::Status;

# What "zstd_mmap_status json" says, and how it changes.
#
#   my $s = Test::Zmap::Status->new($t);   # $t->conf(... $s->location ...)
#   $s->get                                # the whole, decoded
#   $s->get->{counters}{requests}
#   $s->change(sub { ... })                # { requests => 1, decodes => 1 }:
#                                          # counters, reasons.* and bytes.*
#                                          # that are not what they were
#   $s->worker                             # of the only worker
#   $s->poll(sub { $_[0]{files} == 1 })    # true once the only worker is so
#
# A worker's gauges follow the end of a request, which a client may see
# earlier: poll for them.

use strict;
use warnings;

use JSON::PP ();

my $URI = '/zstd-mmap-status';


sub new {
    my ($class, $t) = @_;

    return bless { t => $t }, $class;
}


sub uri { return $URI }
sub location { return "location = $URI { zstd_mmap_status json; }" }


sub get {
    my ($self) = @_;

    my $r = $self->{t}->get($URI);
    die 'status ' . $r->status . "\n" unless $r->status == 200;

    return JSON::PP->new->utf8->decode($r->body);
}


sub _flat {
    my ($status) = @_;

    return (%{$status->{counters}},
        map { my $g = $_;
              map { ("$g.$_" => $status->{$g}{$_}) } keys %{$status->{$g}} }
        qw(reasons bytes));
}


sub change {
    my ($self, $fn) = @_;

    my %before = _flat($self->get);
    $fn->();
    my %after = _flat($self->get);

    return { map { ($_ => $after{$_} - $before{$_}) }
             grep { $after{$_} != $before{$_} } keys %after };
}


sub worker {
    my ($self) = @_;

    my @workers = @{$self->get->{workers}};
    die "not one worker\n" unless @workers == 1;

    return $workers[0];
}


sub poll {
    my ($self, $fn) = @_;

    return $self->{t}->poll(sub { $fn->($self->worker) });
}


1;
