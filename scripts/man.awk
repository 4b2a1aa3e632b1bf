# SPDX-License-Identifier: MIT
#
# man.awk: the pages of scripts/man.sh, which sets date and folder and passes the headers in order.
# All headers are read first: declarations into calls, structs and enums into types. Then a page is
# written for each header, from the comment that opens it, and for each call.
#
# What it relies on, and clang-format keeps: comments of declarations, PKV_API and types begin in
# the first column; a type ends with a line that begins with "}" or on the line where it began; a
# call ends with ";".

FNR == 1 {
    header = FILENAME
    sub(/^include\//, "", header)
    headers[++num_headers] = header
    num_lines = 0
}
/^#define PKV_VERSION_/ { version = version (version == "" ? "" : ".") $3 }

# A comment, with what the declaration below it needs of it: its lines without their marks.
/^\/\*/ && !in_comment { in_comment = 1; num_lines = 0; below = 1 }
in_comment {
    text = $0
    sub(/^\/\* ?/, "", text)
    sub(/^ \*\/$/, "", text)
    sub(/^ \* ?/, "", text)
    sub(/ *\*\/ *$/, "", text)
    if (text != "" || !/\*\/ *$/) lines[++num_lines] = text
    if (/\*\/ *$/) {
        in_comment = 0
        if (!(header in num_opening)) keep_opening()
    }
    next
}
/^$/ { num_lines = 0 }

/^PKV_API / { in_call = 1; call = "" }
in_call {
    sub(/^ +/, "")
    call = call (call == "" ? "" : " ") $0
    if (/;$/) { add_call(); in_call = 0; num_lines = 0 }
    next
}

# Lists that an enum expands.
/^#define PKV_[A-Z_]*_LIST\(/ {
    macro = $2
    sub(/\(.*/, "", macro)
    in_macro = 1
    macros[macro] = definition_of_comment()
}
in_macro {
    macros[macro] = macros[macro] $0 "\n"
    if (!/\\$/) { in_macro = 0; num_lines = 0 }
    next
}

/^(typedef )?(struct|enum) pkv_[a-z0-9_]+ \{/ {
    tag = $0
    sub(/^typedef /, "", tag)
    sub(/ \{.*/, "", tag)
    in_type = 1
    if (!(tag in types)) type_order[++num_types] = tag
    types[tag] = definition_of_comment()
}
in_type {
    types[tag] = types[tag] $0 "\n"
    if (/^\}/ || /\};$/) { in_type = 0; num_lines = 0 }
}

END {
    for (h = 1; h <= num_headers; h++) write_overview(h)
    for (c = 1; c <= num_calls; c++) write_page(c)
}

# The comment that opens a header, without the licence and without "pagedkv/NAME.h: ".
function keep_opening(   i, from) {
    from = 1
    while (lines[from] !~ /^pagedkv\//) from++
    sub(/^[^ ]+ /, "", lines[from])
    for (i = from; i <= num_lines; i++) opening[header, i - from + 1] = lines[i]
    num_opening[header] = num_lines - from + 1
}

# The comment as it is shown above a definition: as a comment.
function definition_of_comment(   i, s) {
    if (num_lines == 0) return ""
    for (i = 1; i <= num_lines; i++)
        s = s (i == 1 ? "/* " : " *" (lines[i] == "" ? "" : " ")) lines[i] \
            (i == num_lines ? " */" : "") "\n"
    return s
}

function add_call(   i) {
    sub(/^PKV_API (PKV_NODISCARD )?/, "", call)
    gsub(/\( /, "(", call)
    num_calls++
    prototypes[num_calls] = call
    names[num_calls] = call
    sub(/\(.*/, "", names[num_calls])
    sub(/.*[ *]/, "", names[num_calls])
    homes[num_calls] = header
    for (i = 1; i <= num_lines; i++) docs[num_calls, i] = lines[i]
    num_docs[num_calls] = num_lines
    if (num_lines == 0) {
        print FILENAME ": " names[num_calls] " has no comment" > "/dev/stderr"
        exit 1
    }
}

# ---- text

# A line that the formatter takes as text, whatever it begins with.
function plain(s) {
    gsub(/\\/, "\\e", s)
    if (s ~ /^[.']/) s = "\\&" s
    return s
}

# One sentence after the other, each on lines of its own, at most 78 columns wide.
function put_text(s,   n, i, words, line) {
    n = split(s, words, / +/)
    line = ""
    for (i = 1; i <= n; i++) {
        if (words[i] == "") continue
        if (line != "" && length(line) + 1 + length(words[i]) > 78) {
            put(plain(line))
            line = ""
        }
        line = line (line == "" ? "" : " ") words[i]
        if (words[i] ~ /[.:?]\)?"?$/ && words[i] !~ /^\.+$/ && i < n) {
            put(plain(line))
            line = ""
        }
    }
    if (line != "") put(plain(line))
}

function put_literal(s,   n, i, part) {
    n = split(s, part, /\n/)
    put(".Bd -literal" indent)
    for (i = 1; i <= n; i++) if (i < n || part[i] != "") put(plain(part[i]))
    put(".Ed")
}

function put(s) { print s > file }

# ---- pages

function begin_page(name, home, about) {
    file = folder "/" name ".3"
    put(".\\\" Written by scripts/man.sh from include/" home "; do not edit.")
    put(".Dd " date)
    put(".Dt " toupper(name) " 3")
    put(".Os pagedkv " version)
    put(".Sh NAME")
    put(".Nm " name)
    put(".Nd " about)
}

# The page of a header: pagedkv for base.h, whose opening holds for all, else pagedkv_NAME.
function overview_of(home) {
    if (home == "pagedkv/base.h") return "pagedkv"
    sub(/^pagedkv\//, "pagedkv_", home)
    sub(/\.h$/, "", home)
    return home
}

# What is indented in an opening is a drawing, a list or an example: it stays as it is.
function write_overview(h,   home, i, s, c, paragraph, block) {
    home = headers[h]
    s = description(opening[home, 1], opening[home, 2])
    if (home == "pagedkv/base.h") s = "what holds for every call of the library"
    begin_page(overview_of(home), home, s)
    put(".Sh SYNOPSIS")
    put(".In " home)
    put(".Sh DESCRIPTION")
    num_paragraphs = 0
    paragraph = block = ""
    for (i = 1; i <= num_opening[home] + 1; i++) {
        s = opening[home, i]
        if (s ~ /^  / || (block != "" && s == "" && opening[home, i + 1] ~ /^  /)) {
            if (paragraph != "") put_paragraph(paragraph)
            paragraph = ""
            block = block substr(s, 3) "\n"
            continue
        }
        if (block != "") put_literal(block)
        block = ""
        if (i == 1) s = toupper(substr(s, 1, 1)) substr(s, 2)
        if (s != "") paragraph = paragraph (paragraph == "" ? "" : " ") s
        else if (paragraph != "") { put_paragraph(paragraph); paragraph = "" }
    }
    put(".Sh CALLS")
    put(".Bl -tag -width Ds")
    for (c = 1; c <= num_calls; c++) if (homes[c] == home) {
        put(".It Xr " names[c] " 3")
        put(description(docs[c, 1], docs[c, 2]))
    }
    put(".El")
    num_listed = 0
    for (i = 1; i <= num_headers; i++) if (i != h) listed[++num_listed] = overview_of(headers[i])
    write_list()
    close(file)
}

function write_page(c) {
    begin_page(names[c], homes[c], description(docs[c, 1], docs[c, 2]))
    write_synopsis(c)
    write_description(c)
    write_types(c)
    write_see_also(c)
    close(file)
}

# The first sentence, up to a colon or comma, without its capital.
function description(first, second,   s) {
    s = first " " second
    sub(/(\. |[:,;]|\.$).*/, "", s)
    sub(/\.$/, "", s)
    sub(/ \([^)]*$/, "", s)
    if (s !~ /^[A-Z][A-Z]/) s = tolower(substr(s, 1, 1)) substr(s, 2)
    return plain(s)
}

function write_synopsis(c,   type, arguments, argument, mark, i, depth) {
    type = prototypes[c]
    type = substr(type, 1, index(type, names[c] "(") - 1)
    sub(/ +$/, "", type)
    put(".Sh SYNOPSIS")
    put(".In " homes[c])
    put(".Ft \"" type "\"")
    put(".Fo " names[c])
    arguments = prototypes[c]
    sub(/^[^(]*\(/, "", arguments)
    sub(/\);$/, "", arguments)
    argument = ""
    depth = 0
    for (i = 1; i <= length(arguments); i++) {
        mark = substr(arguments, i, 1)
        depth += (mark == "(") - (mark == ")")
        if (mark == "," && depth == 0) {
            put_argument(argument)
            argument = ""
        } else argument = argument mark
    }
    put_argument(argument)
    put(".Fc")
}
function put_argument(s) {
    gsub(/^ +| +$/, "", s)
    gsub(/  +/, " ", s)
    put(".Fa \"" s "\"")
}

# Paragraphs of the comment. That of the answers is kept for its own section; what it says of
# threads and cost ends the description.
function write_description(c,   i, s, is_literal, paragraph, answers, rest, block) {
    put(".Sh DESCRIPTION")
    num_paragraphs = 0
    paragraph = answers = block = ""
    for (i = 1; i <= num_docs[c] + 1; i++) {
        s = i <= num_docs[c] ? docs[c, i] : ""
        is_literal = s ~ /^    / || (block != "" && s == "" && docs[c, i + 1] ~ /^    /)
        if (!is_literal && block != "") {
            indent = " -offset indent"
            put_literal(block)
            indent = block = ""
        }
        if (is_literal) {
            if (paragraph != "") { put_paragraph(paragraph); paragraph = "" }
            block = block substr(s, 5) "\n"
        } else if (s == "") {
            if (paragraph ~ /^Returns /) answers = paragraph
            else if (paragraph != "") put_paragraph(paragraph)
            paragraph = ""
        } else paragraph = paragraph (paragraph == "" ? "" : " ") s
    }
    rest = ""
    if (match(answers, /[.] +(It takes no memory|Any thread|Any of the threads|The (step|workspace).s thread|Several threads|No other thread|The caller keeps|O\()/)) {
        rest = substr(answers, RSTART + 2)
        answers = substr(answers, 1, RSTART)
    }
    if (rest != "") put_paragraph(rest)
    num_paragraphs = 0
    if (answers != "") {
        put(".Sh RETURN VALUES")
        put(".Fn " names[c])
        put_text("r" substr(answers, 2))
    }
}
function put_paragraph(s) {
    if (num_paragraphs++ > 0) put(".Pp")
    put_text(s)
}

# Types that the prototype names in full; what they contain where it was not shown before.
function write_types(c,   direct, later, t, tag) {
    for (t = 1; t <= num_types; t++) {
        tag = type_order[t]
        direct[t] = names_type(parameters(c), tag) && tag !~ /^struct pkv_(seq|step|pin|slot)$/
    }
    for (t = 1; t <= num_types; t++) later[t] = 0
    for (t = num_types; t >= 1; t--) if (direct[t] || later[t]) mark_contents(t, direct, later)
    num_shown = 0
    for (t = 1; t <= num_types; t++) if (direct[t]) show_type(c, type_order[t])
    for (t = 1; t <= num_types; t++) if (later[t]) show_type(c, type_order[t])
    num_referred = 0
    for (t = 1; t <= num_types; t++) if (later[t] && shown[type_order[t]] != names[c])
        refer_to_type(type_order[t])
    if (num_referred > 0) put(".El")
}
# Contents that an earlier page shows are left to refer_to_type.
function show_type(c, tag) {
    if (tag in shown && !names_type(parameters(c), tag)) return
    if (num_shown++ == 0) put(".Sh TYPES")
    put_literal(lists_in(types[tag]) types[tag])
    if (!(tag in shown)) shown[tag] = names[c]
}
function refer_to_type(tag) {
    if (num_referred++ == 0) {
        put(".Pp")
        put("What these contain is described elsewhere:")
        put(".Bl -item -compact -offset indent")
    }
    put(".It")
    put(".Vt " tag)
    put("in")
    put(".Xr " shown[tag] " 3")
}
function parameters(c,   s) {
    s = prototypes[c]
    sub(/^[^(]*\(/, "", s)
    return s
}
function names_type(s, tag) { return (" " s) ~ ("[^a-z_]" tag "[^a-z0-9_]") }
function mark_contents(t, direct, later,   i) {
    for (i = 1; i <= num_types; i++)
        if (i != t && !direct[i] && !later[i] && type_order[i] != "enum pkv_status" &&
            names_type(code_of(types[type_order[t]]), type_order[i])) {
            later[i] = 1
            mark_contents(i, direct, later)
        }
}
# A definition without its comments.
function code_of(s,   n, i, part, code, inside) {
    n = split(s, part, /\n/)
    for (i = 1; i <= n; i++) {
        if (part[i] ~ /^ *\/\*/) inside = 1
        if (!inside) code = code part[i] "\n"
        if (part[i] ~ /\*\/ *$/) inside = 0
    }
    return code
}
function lists_in(s,   m, all) {
    for (m in macros) if (index(s, m "(")) all = all macros[m]
    return all == "" ? "" : all "\n"
}

# The overview of the library and of the call's header, and the header's other calls.
function write_see_also(c,   i) {
    num_listed = 0
    listed[++num_listed] = "pagedkv"
    if (overview_of(homes[c]) != "pagedkv") listed[++num_listed] = overview_of(homes[c])
    for (i = 1; i <= num_calls; i++)
        if (i != c && homes[i] == homes[c]) listed[++num_listed] = names[i]
    write_list()
}
function write_list(   i, j, other) {
    for (i = 2; i <= num_listed; i++) {
        other = listed[i]
        for (j = i - 1; j >= 1 && listed[j] > other; j--) listed[j + 1] = listed[j]
        listed[j + 1] = other
    }
    put(".Sh SEE ALSO")
    for (i = 1; i <= num_listed; i++) put(".Xr " listed[i] " 3" (i < num_listed ? " ," : ""))
}
