#!/bin/sh
# SPDX-License-Identifier: MIT
#
# plot.sh CSV FOLDER: charts of bench/attn's numbers, as SVG. Time against keys, rows, query heads
# and window length, each with the slope that least squares fit to it, and the share of the
# machine's limit that every decode case reaches. Needs gnuplot.
set -eu

[ $# = 2 ] || {
    echo 'usage: plot.sh CSV FOLDER' >&2
    exit 2
}
csv=$1
folder=$2
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT

# The case's name is quoted and holds commas: it becomes the last field, the others are found by
# the names of the first line.
awk '
    NR == 1 { sub(/,case/, "") ; print $0 ",case"; next }
    { match($0, /"[^"]*"/); name = substr($0, RSTART + 1, RLENGTH - 2)
      print substr($0, 1, RSTART - 1) substr($0, RSTART + RLENGTH + 1) "," name }' \
    "$csv" >"$data/plain"

# select GROUP KEY=VALUE X: lines "x median_ms min_ms max_ms" of the cases with that value, by x
select_cases() {
    awk -F, -v group="$1" -v key="${2%%=*}" -v value="${2#*=}" -v x="$3" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["group"] == group && $at[key] == value {
            print $at[x], $at["median_us"] / 1e3, $at["min_us"] / 1e3, $at["max_us"] / 1e3 }' \
        "$data/plain" | sort -n
}

# chart NAME TITLE X-LABEL SCALE UNIT FACTOR (FILE LABEL)...: points, and a fitted line with its
# slope in microseconds per FACTOR on the x axis, which UNIT names. Each point counts by its
# relative error, as the noise of a time is in proportion to it. SCALE: linear, or log for both axes
chart() {
    name=$1 title=$2 label=$3 scale=$4 unit=$5 factor=$6
    shift 6
    {
        echo "set terminal svg size 720,440 font 'sans,13' background 'white'"
        echo "set output '$folder/$name.svg'"
        echo "set title '$title'; set xlabel '$label'; set ylabel 'ms'; set key below"
        echo 'set grid; set style data points; set rmargin 5'
        case $scale in
        linear) echo 'set xrange [0:*]; set yrange [0:*]' ;;
        log) echo 'set logscale xy 2; set format x "%.0f"; set xtics rotate by -40' ;;
        esac
        echo 'set fit quiet; set fit logfile "/dev/null"'
        plot=plot
        n=0
        while [ $# -gt 1 ]; do
            n=$((n + 1))
            echo "f$n(x) = a$n + b$n * x"
            echo "a$n = 0.01; b$n = 0.001"
            echo "fit f$n(x) '$1' using 1:2:(0.05 * \$2) yerror via a$n, b$n"
            plot="$plot '$1' using 1:2 pt 7 lc $n title '$2',"
            plot="$plot f$n(x) lc $n title sprintf('%.0f us a $unit', 1e3 * $factor * b$n),"
            shift 2
        done
        echo "${plot%,}"
    } >"$data/script"
    gnuplot "$data/script"
    echo "$folder/$name.svg"
}

select_cases keys rows=1 keys >"$data/one"
select_cases keys rows=8 keys >"$data/eight"
chart bench-keys 'One decode step against keys a row (L8, f16, block 16)' 'keys a row' log \
    'thousand keys' 1000 "$data/one" '1 row' "$data/eight" '8 rows'

select_cases rows dtype=f16 rows >"$data/f16"
select_cases rows dtype=int8 rows >"$data/int8"
chart bench-rows 'One decode step against rows of 4096 keys (L8, block 16)' 'rows' linear row 1 \
    "$data/f16" f16 "$data/int8" int8

select_cases heads dtype=f32 heads >"$data/f32"
select_cases heads dtype=f16 heads >"$data/f16"
chart bench-heads 'One decode step against query heads (8 KV heads, 8 x 4096 keys)' \
    'query heads' linear head 1 "$data/f32" f32 "$data/f16" f16

select_cases windows rows=8 window >"$data/window"
chart bench-windows 'One decode step against window length (L8, f16, 8 x 8192 keys)' \
    'keys in the window' log 'thousand keys' 1000 "$data/window" '8 rows'

awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["group"] == "decode" || $at["group"] == "models" {
        window = $at["window"] > 0 ? " window" : ""
        print "\"" $at["model"] window " " $at["dtype"] "\"", $at["limit_percent"] }' \
    "$data/plain" >"$data/limits"
{
    echo "set terminal svg size 900,440 font 'sans,12' background 'white'"
    echo "set output '$folder/bench-limit.svg'"
    echo "set title 'Share of max(bytes / read bandwidth, flops / FMA peak), decode'"
    echo "set ylabel '% of limit'; set yrange [0:100]; set grid y"
    echo 'set xtics rotate by -50; set rmargin 8'
    echo 'set style fill solid 0.7; set boxwidth 0.7; unset key'
    echo "plot '$data/limits' using 0:2:xtic(1) with boxes lc 1"
} >"$data/script"
gnuplot "$data/script"
echo "$folder/bench-limit.svg"
