package Bench::Table;

# Medians, and Markdown tables of them.

use strict;
use warnings;
use utf8;

use List::Util ();


sub median {
    my (@values) = sort { $a <=> $b } @_;

    my $half = int(@values / 2);

    return @values % 2 ? $values[$half]
                       : ($values[$half - 1] + $values[$half]) / 2;
}


# "11.3 (11.1–11.6)"
sub spread {
    my ($digits, @values) = @_;

    my $f = "%.${digits}f";

    return sprintf "$f ($f–$f)", median(@values), List::Util::min(@values),
                   List::Util::max(@values);
}


# table([heading, ...], [cell, ...], ...): numbers in all columns but the first
sub table {
    my ($heading, @rows) = @_;

    my @rule = ('---', ('---:') x (@$heading - 1));

    return join '', map { '| ' . join(' | ', @$_) . " |\n" }
                    $heading, \@rule, @rows;
}


1;
