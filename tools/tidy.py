#!/usr/bin/env python3
"""Checks what compilers do not: the layers, the banned calls, the coroutine shapes that g++ 12 miscompiles, sizes.

    tools/tidy.py                 the whole tree
    tools/tidy.py src/core/*.cc   some files

Prints `file:line: rule: words` for each finding and exits 1 if there is any (warnings do not count).
The rules are tables at the top; each check is one function below them. tools/tidy_test.py has a sample of each.
"""
import argparse
import bisect
import os
import re
import sys
from fnmatch import fnmatch
from typing import NamedTuple

FILE_LINES_MAX = 800
FILE_LINES_WARN = 600
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 120

# ---- The layers of DESIGN.md: what a file of each folder may include, besides its own folder. ----

_DECISIONS = {"core", "model", "elastic", "cluster"}
_SHELL = {"core", "world", "model", "elastic", "cluster", "policy", "reconcile", "archive"}
LAYERS = {
    "core": set(),
    "world": {"core"},
    "model": {"core"},
    "api": {"core", "model"},
    # One folder each: what it is, and how its machines are made.
    "clouds": _SHELL | {"provider", "aws", "gcp", "rest", "kubernetes"},
    "archive": {"core", "world"},
    "rest": {"core", "world"},
    "aws": {"core", "world", "rest"},
    "gcp": {"core", "world", "rest"},
    "petctl": {"core", "world", "rest", "aws", "archive"},  # elastic jobs on Auto Scaling groups
    "kubernetes": {"core", "world", "rest"},
    # The operator: decisions and their loop; sizes of adaptive jobs by policy::allocate.
    "elasticjob": {"core", "world", "model", "api", "rest", "kubernetes", "policy"},
    "elastic": {"core", "model"},
    "cluster": {"core", "model", "elastic"},
    "policy": _DECISIONS,
    "reconcile": _DECISIONS | {"policy"},
    "provider": _SHELL,
    "agent": _SHELL,
    "node": _SHELL | {"agent", "aws", "rest"},  # asks a cloud whether its machine goes away
    "head": _SHELL | {"provider", "api"},  # the head acts through a provider's interface
    "os": {"core", "world"},
    "sim": {"core", "world"},
    # Whole clusters in virtual time: drives every shell on sim's World.
    "simulate": _SHELL | {"provider", "agent", "node", "head", "sim", "api"},
    # What people and programs meet: from what is typed and shown up to the commands.
    "terminal": {"core", "model", "api"},
    # What a cluster that is down has left is read as its head would, and for `simulate --replay`.
    "client": {"core", "world", "model", "cluster", "archive", "api", "terminal", "provider", "head", "os", "simulate"},
    "deploy": {"core", "world", "model", "cluster", "archive", "api", "terminal", "client", "provider", "os"},
    # Copies of checkpoints go to buckets.
    "daemon": _SHELL | {"terminal", "client", "provider", "agent", "node", "head", "os", "rest", "aws", "gcp"},
    "cli": _SHELL | {"api", "aws", "gcp", "rest", "petctl", "kubernetes", "elasticjob", "provider", "agent", "node",
                     "head", "os", "sim", "simulate", "terminal", "client", "deploy", "daemon"},
}
PURE_LAYERS = {"api", "model", "elastic", "cluster", "policy", "reconcile", "terminal"}
TEST_EXTRA = {"os", "sim"}  # tests may use either world
# The simulator's tests drive the real shells; the tests of what commands are made of type commands.
FOLDER_TEST_EXTRA = {"sim": _SHELL | {"provider", "agent", "node", "head"}, "client": {"cli"}, "deploy": {"cli"}}
GENERATED_HEADERS = {"build_stamp.h"}
ROOT_FILES = {"src/main.cc": {"cli"}}
NO_CODE_FOLDERS = {"python"}  # files that are embedded in the binary
OS_ONLY_HEADERS = ("boost/", "openssl/", "sys/socket.h", "netinet/", "arpa/", "netdb.h", "pthread.h")
# Functions of their arguments, that no simulation needs to know of.
PURE_OPENSSL = {"src/rest/rs256.cc", "src/kubernetes/websocket.cc"}

# ---- Banned outside os/: kind -> (words, what to use instead). ----
# A name with `std::` matches only so qualified; one with `()` matches only calls of the C function, not methods
# and declarations of that name; a bare name matches everywhere.

# What touches the disk; std::filesystem::path alone is text.
_FILE_CALLS = ("absolute canonical weakly_canonical relative proximate copy copy_file copy_symlink create_directory "
               "create_directories create_hard_link create_symlink current_path equivalent exists file_size "
               "hard_link_count is_directory is_empty is_regular_file is_symlink last_write_time permissions "
               "read_symlink remove remove_all rename resize_file space status symlink_status temp_directory_path "
               "directory_iterator recursive_directory_iterator").split()

BANS = {
    "clock": ("system_clock steady_clock high_resolution_clock utc_clock time() clock() clock_gettime() gettimeofday() "
              "timespec_get()", "take the time from world.clock"),
    "thread": ("std::thread std::jthread std::async std::mutex std::recursive_mutex std::shared_mutex std::timed_mutex "
               "std::condition_variable std::condition_variable_any std::lock_guard std::unique_lock std::scoped_lock "
               "this_thread pthread_create()", "one loop thread; offload() for calls that block"),
    "random": ("random_device rand() srand() random() drand48() getrandom() arc4random()", "use world.random"),
    "socket": ("socket() socketpair() connect() bind() getaddrinfo()", "use world.network"),
    "environment": ("getenv() secure_getenv() setenv() unsetenv() putenv() environ", "cli reads it and passes values"),
    "filesystem": (" ".join(f"{name}::{call}" for name in ("filesystem", "fs") for call in _FILE_CALLS),
                   "use world.files"),
    "process": ("fork() vfork() execv() execve() execvp() execvpe() execl() execlp() execle() fexecve() "
                "posix_spawn() posix_spawnp() system() popen()", "use world.processes"),
    "sleep": ("sleep() usleep() nanosleep() clock_nanosleep()", "co_await world.clock.sleep_until"),
    "unordered": ("unordered_map unordered_set unordered_multimap unordered_multiset",
                  "its order differs from run to run; use std::map, std::set or a sorted vector"),
    "output": ("std::cout std::cerr std::clog printf() fprintf() vprintf() puts() fputs() putchar() perror() "
               "fmt::print", "use world.console or the log"),
    "name": ("errand errands Errand stir restless words", "take a name of the glossary in CONTRIBUTING.md"),
}

# Commands that take paths, and what reads the folders of this machine's clusters. No other file of their folders asks
# the disk but by World's files.
_COMMANDS_WITH_PATHS = [
    *(f"src/cli/{name}.cc"
      for name in ("allocate_command cli config_commands cp_command dataset_command doctor_cluster kubernetes_command "
                   "petctl_command pollux_command simulate_command submit_command").split()),
    *(f"src/client/{name}.cc" for name in "cluster_home fetch_command past_file user_file".split()),
    *(f"src/deploy/{name}.cc" for name in "connect_command exec_command remote_up rsync_command".split()),
    "src/daemon/daemon_command.cc",
    "src/cli/testing.h",
]

# Who may do it all the same: (path pattern, kind of ban, why).
EXCEPTIONS = [
    ("src/os/*", "*", "os is the real world"),
    ("src/cli/*", "environment", "flags have their defaults in PET_* and XDG variables"),
    ("src/cli/*", "output", "the CLI prints"),
    *((path, "filesystem", "what people type is meant from the folder that they are in")
      for path in _COMMANDS_WITH_PATHS),
    ("*_testing.h", "filesystem", "tests have folders of their own"),
    ("*_test.cc", "filesystem", "tests have folders of their own"),
    ("src/core/sha256.cc", "name", "words of 32 bits"),
    ("src/rest/md5.cc", "name", "words of 32 bits"),
    ("src/core/error.cc", "output", "check_failed speaks before it aborts"),
    ("*_test.cc", "environment", "a test reads the seed to replay, or sets what the code under test reads"),
    ("*_test.cc", "output", "a test prints the seed that failed"),
    ("src/archive/compat_test.cc", "process", "it asks git, tar and python3 for their opinion"),
    ("tests/*", "*", "end-to-end tests use the real machine"),
    ("bench/*", "*", "benchmarks measure the real machine"),
]

CODE_FOLDERS = ("src", "tests", "tools", "bench", "demo", ".ci")
CPP = (".h", ".cc")
SCRIPTS = (".py", ".sh", ".bash")


class Finding(NamedTuple):
    path: str
    line: int
    rule: str
    words: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.words}"


class Token(NamedTuple):
    kind: str  # word, number, string, char, punct
    text: str
    line: int


_TOKEN = re.compile(
    r"""
      (?P<comment> //(?:\\\n|[^\n])* | /\*.*?\*/ )
    | (?P<raw>     (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)" )
    | (?P<string>  (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" )
    | (?P<char>    (?:u8|[uUL])?'(?:\\.|[^'\\\n])+' )
    | (?P<number>  \.?\d(?:[eEpP][+-]|'?[\w.])* )
    | (?P<word>    [A-Za-z_]\w* )
    | (?P<space>   \s+ )
    | (?P<punct>   ::|->|\.\.\.|. )
    """,
    re.X | re.S,
)
_OPEN = {"(": ")", "[": "]", "{": "}"}
_CLOSE = {")", "]", "}"}


class Source:
    """One C++ file: its lines, tokens without comments, comments, includes, and the partner of each bracket."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        self.tokens = []
        self.comments = []  # (line, text)
        self._starts = [0] + [m.end() for m in re.finditer("\n", text)]
        for match in _TOKEN.finditer(text):
            kind, line = match.lastgroup, bisect.bisect(self._starts, match.start())
            if kind == "raw":
                kind = "string"
            if kind == "comment":
                self.comments.append((line, match.group()))
            elif kind != "space":
                self.tokens.append(Token(kind, match.group(), line))
        self.partner = self._match_brackets()
        self.includes = list(self._find_includes())  # (line, "name" or <name>)

    @property
    def folder(self):
        """The layer's name, or "" outside src/ and for files directly in src/."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "src" and len(parts) > 2 else ""

    @property
    def is_test(self):
        return self.path.startswith("tests/") or os.path.splitext(self.path)[0].endswith(("_test", "_testing"))

    def text_at(self, index):
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def _match_brackets(self):
        partner, stack = {}, []
        for index, token in enumerate(self.tokens):
            if token.kind != "punct":
                continue
            if token.text in _OPEN:
                stack.append(index)
            elif token.text in _CLOSE and stack and _OPEN[self.tokens[stack[-1]].text] == token.text:
                partner[stack[-1]] = index
                partner[index] = stack.pop()
        return partner

    def _find_includes(self):
        for index, token in enumerate(self.tokens):
            if token.text != "#" or self.text_at(index + 1) != "include":
                continue
            match = re.match(r'\s*#\s*include\s*(<[^>]*>|"[^"]*")', self.lines[token.line - 1])
            if match:
                yield token.line, match[1]


# ---- (a) layers, and (f) a file's own header first ----

def check_layers(source, exists):
    if not source.path.startswith("src/"):
        return
    folder = source.folder
    if not folder:
        if source.path not in ROOT_FILES:
            yield Finding(source.path, 1, "layer", "a source file belongs into a layer's folder under src/")
            return
        allowed = ROOT_FILES[source.path]
    elif folder not in LAYERS:
        yield Finding(source.path, 1, "layer", f"unknown folder src/{folder}; add it to LAYERS in tools/tidy.py")
        return
    else:
        allowed = LAYERS[folder] | {folder}
        if source.is_test:
            allowed = allowed | TEST_EXTRA | FOLDER_TEST_EXTRA.get(folder, set())
    for line, include in source.includes:
        name = include[1:-1]
        if include[0] == "<":
            pure = source.path in PURE_OPENSSL and name.startswith("openssl/")
            if folder != "os" and not source.is_test and not pure and name.startswith(OS_ONLY_HEADERS):
                yield Finding(source.path, line, "layer", f"<{name}> is for src/os only")
            continue
        if name in GENERATED_HEADERS:
            continue
        target = name.split("/")[0] if "/" in name else ""
        if target not in LAYERS:
            yield Finding(source.path, line, "layer", f'"{name}" names no layer; write "layer/file.h"')
        elif target not in allowed:
            who = f"{folder}/" if folder else source.path
            yield Finding(source.path, line, "layer", f'{who} may not include "{name}"; includes point down only')
    own = re.sub(r"\.cc$", ".h", source.path)
    if source.path.endswith(".cc") and exists(own):
        first = source.includes[0][1] if source.includes else ""
        if first != f'"{own[len("src/"):]}"':
            line = source.includes[0][0] if source.includes else 1
            yield Finding(source.path, line, "own-header", f'the first include must be "{own[len("src/"):]}"')


# ---- (b) banned calls ----

def _ban_table():
    table = {}  # name -> [(qualifier or "", must be a call, kind)]
    for kind, (words, _) in BANS.items():
        for word in words.split():
            name = word.removesuffix("()")
            qualifier, _, name = name.rpartition("::")
            table.setdefault(name, []).append((qualifier, word.endswith("()"), kind))
    return table


_BANNED = _ban_table()
# After one of these an unqualified name followed by ( is a call; after another word it is a declaration.
_BEFORE_CALL = {"return", "else", "do", "throw", "co_return", "case", "not", "and", "or"}
_BEFORE_DECLARATION = {">", "*", "&", "]", "~"}


def _is_c_call(source, index):
    """Whether the name here is called as a plain function: `f(`, `::f(`, `std::f(`; no method, no declaration."""
    if source.text_at(index + 1) != "(":
        return False
    before = index - 1
    if source.text_at(before) == "::":
        if source.text_at(before - 1) == "std":
            return source.text_at(index) != "bind"  # std::bind is no socket call
        owner = source.tokens[before - 1] if before else None
        return not (owner and (owner.kind == "word" and owner.text not in _BEFORE_CALL or owner.text == ">"))
    if before < 0 or source.text_at(before) in {".", "->"}:
        return False
    return not _is_declared(source, index) and not _is_own(source, source.text_at(index))


def _is_declared(source, index):
    """Whether a type stands before the name: `Random fork(`, `Task<int> connect(`; but `a && time(0)` is a call."""
    token = source.tokens[index - 1]
    if token.kind == "word":
        return token.text not in _BEFORE_CALL
    if token.text in _BEFORE_DECLARATION:
        return token.text != "&" or source.text_at(index - 2) != "&"
    return False


def _is_own(source, name):
    """Whether this file declares a function or a method of that name, so that a plain call means that one."""
    for index, token in enumerate(source.tokens):
        if token.text != name or source.text_at(index + 1) != "(" or index == 0:
            continue
        if source.text_at(index - 1) == "::":
            owner = source.tokens[index - 2]
            if owner.text == ">" or owner.kind == "word" and owner.text not in _BEFORE_CALL | {"std"}:
                return True
        elif _is_declared(source, index) and source.text_at(index - 1) not in {"co_await", "co_yield"}:
            return True
    return False


def check_banned(source, _exists):
    excused = {kind for pattern, kind, _ in EXCEPTIONS if fnmatch(source.path, pattern)}
    if "*" in excused:
        return
    for index, token in enumerate(source.tokens):
        if token.kind != "word":
            continue
        for qualifier, is_call, kind in _BANNED.get(token.text, ()):
            if kind in excused:
                continue
            if qualifier and (source.text_at(index - 1) != "::" or source.text_at(index - 2) != qualifier):
                continue
            if is_call and not _is_c_call(source, index):
                continue
            if not is_call and not qualifier and source.text_at(index - 1) in {".", "->"}:
                continue
            name = f"{qualifier}::{token.text}" if qualifier else token.text + ("()" if is_call else "")
            yield Finding(source.path, token.line, f"banned-{kind}", f"{name} outside src/os: {BANS[kind][1]}")
            break


def check_pure(source, _exists):
    if source.folder not in PURE_LAYERS:
        return
    for index, token in enumerate(source.tokens):
        if token.kind == "word" and (token.text in {"co_await", "co_return", "co_yield"}
                                     or token.text == "Task" and source.text_at(index + 1) == "<"):
            yield Finding(source.path, token.line, "pure",
                          f"{token.text} in src/{source.folder}: decisions are plain functions; shells await")


# ---- (c) coroutine shapes that g++ 12 miscompiles ----

class Lambda(NamedTuple):
    begin: int  # the [
    captures: bool
    body: int  # the {
    end: int  # the }


def find_lambdas(source):
    for index, token in enumerate(source.tokens):
        if token.kind != "punct" or token.text != "[" or index not in source.partner:
            continue
        before = source.tokens[index - 1] if index else None
        if before and (before.kind in {"string", "number"} or before.text in {")", "]", "["}
                       or before.kind == "word" and before.text not in _BEFORE_CALL | {"co_await", "co_yield"}):
            continue  # a subscript, an array's size, or an attribute
        if source.text_at(index + 1) == "[":
            continue
        close = source.partner[index]
        body = _lambda_body(source, close + 1)
        if body is not None and body in source.partner:
            yield Lambda(index, close > index + 1, body, source.partner[body])


def _lambda_body(source, index):
    """The { of the lambda whose ] is just before `index`, past <T>, (parameters), specifiers and -> Type."""
    for _ in range(200):
        text = source.text_at(index)
        if text == "{":
            return index
        if text in {"(", "["} and index in source.partner:
            index = source.partner[index]
        elif text in {"", ";", ",", ")", "]", "}", "="}:
            if text != "," or not _inside_angles(source, index):
                return None
        index += 1
    return None


def _inside_angles(source, index):
    """Whether a comma sits between < and > on the way back to the lambda's ] or )."""
    depth = 0
    while index > 0:
        index -= 1
        text = source.text_at(index)
        if text == "<":
            if depth == 0:
                return True
            depth -= 1
        elif text == ">":
            depth += 1
        elif text in {";", "{", "}", "]", ")"}:
            return False
    return False


def _await_end(source, index):
    """The first token after the operand of the co_await at `index`."""
    index += 1
    while index < len(source.tokens):
        text = source.text_at(index)
        if text in {";", ","} or text in _CLOSE:
            return index
        index = source.partner.get(index, index) + 1 if text in _OPEN else index + 1
    return index


def check_coroutines(source, _exists):
    lambdas = list(find_lambdas(source))
    bodies = {one.body for one in lambdas}
    found = set()
    for index, token in enumerate(source.tokens):
        if token.kind != "word" or token.text not in {"co_await", "co_return", "co_yield"}:
            continue
        around = [one for one in lambdas if one.body < index < one.end]
        if around and around[-1].captures:  # the innermost: they come in order of their beginning
            found.add((source.tokens[around[-1].begin].line, "coroutine-lambda",
                       "a coroutine lambda with captures loses them at its first wait; pass them as parameters"))
        if token.text == "co_await":
            found.update(_await_findings(source, index, lambdas, bodies))
    found.update(_statement_expressions(source))
    for line, rule, words in sorted(found):
        yield Finding(source.path, line, rule, words)


def _await_findings(source, index, lambdas, bodies):
    end = _await_end(source, index)
    for one in lambdas:
        if index < one.begin < end and one.captures:
            yield (source.tokens[one.begin].line, "await-lambda",
                   "a capturing lambda inside co_await is a double free in g++ 12; make it a named local first")
    inner = index + 1
    depth = 0  # of parentheses
    while inner < end:
        text = source.text_at(inner)
        depth += (text == "(") - (text == ")")
        if text == "{" and inner in bodies:
            inner = source.partner[inner]  # a lambda's body is checked by its own co_awaits
        elif text == "{" and depth > 0:
            yield (source.tokens[inner].line, "await-aggregate",
                   "a braced temporary inside co_await is a double free in g++ 12; make it a named local first")
            inner = source.partner.get(inner, inner)
        inner += 1


def _statement_expressions(source):
    words = "co_await inside ({ ... }) is an internal error of g++ 12; use a function"
    for index, token in enumerate(source.tokens):
        if token.text != "(" or source.text_at(index + 1) != "{" or index + 1 not in source.partner:
            continue
        inside = source.tokens[index + 1:source.partner[index + 1]]
        if any(one.text == "co_await" for one in inside):
            yield token.line, "await-statement", words
        elif _in_define(source, token.line) and any(one.text == ";" for one in inside):
            yield token.line, "await-statement", "no ({ ... }) macros: g++ 12 fails when a co_await goes through one"


def _in_define(source, line):
    while line > 1 and source.lines[line - 2].endswith("\\"):
        line -= 1
    return re.match(r"\s*#\s*define\b", source.lines[line - 1]) is not None


# ---- (d) sizes ----

_SCOPE_WORDS = {"namespace", "class", "struct", "union", "enum", "extern"}


def find_functions(source):
    """(name, first line, last line) of each function that is not inside another: a block that holds a `;`."""
    index = head = 0
    while index < len(source.tokens):
        token = source.tokens[index]
        if token.kind == "punct" and token.text == "{" and index in source.partner:
            end = source.partner[index]
            if _opens_scope(source, head, index):
                head = index + 1
            else:
                if any(one.text == ";" for one in source.tokens[index:end]):
                    yield _function_name(source, head, index), source.tokens[head].line, source.tokens[end].line
                # In `Foo() : a_{1}, b_(2) {` the head goes on after a member's braces.
                index = end
                if source.text_at(end + 1) not in {",", "{"}:
                    head = end + 1
        elif token.text in {";", "}"} or (token.text == ":" and source.text_at(index - 1) in
                                          {"public", "private", "protected"}):
            head = index + 1
        elif token.text == "#" and token.kind == "punct":
            line = token.line  # a directive is no part of a function's head
            while source.lines[line - 1].endswith("\\"):
                line += 1
            while index + 1 < len(source.tokens) and source.tokens[index + 1].line <= line:
                index += 1
            head = index + 1
        index += 1


def _opens_scope(source, head, brace):
    words, index = [], head
    while index < brace:
        if source.text_at(index) == "template" and source.text_at(index + 1) == "<":
            depth, index = 1, index + 2
            while index < brace and depth:
                depth += {"<": 1, ">": -1}.get(source.text_at(index), 0)
                index += 1
            continue
        if source.text_at(index) in {"[", "alignas"} and index + (source.text_at(index) != "[") in source.partner:
            index = source.partner[index + (source.text_at(index) != "[")] + 1
            continue
        words.append(source.text_at(index))
        index += 1
    return any(word in _SCOPE_WORDS for word in words) and "(" not in words


def _function_name(source, head, brace):
    for index in range(head, brace):
        if source.text_at(index) == "(":
            name = source.text_at(index - 1)
            if name in {"TEST", "TEST_F", "TEST_P", "RC_GTEST_PROP", "RC_GTEST_FIXTURE_PROP"}:
                return ".".join(one.text for one in source.tokens[index + 1:source.partner[index]]
                                if one.kind == "word")
            return name
    return source.text_at(head)


def check_sizes(source, _exists):
    count = len(source.lines) - 1
    if count > FILE_LINES_MAX:
        yield Finding(source.path, count, "file-length", f"{count} lines; a file is one idea, {FILE_LINES_MAX} at most")
    elif count > FILE_LINES_WARN:
        yield Finding(source.path, count, "warning", f"{count} lines; seldom over 400, never over {FILE_LINES_MAX}")
    excuses = [line for line, text in source.comments if re.match(r"//\s*tidy: long: \w+", text)]
    for name, first, last in find_functions(source):
        length = last - first + 1
        if length > FUNCTION_LINES_MAX and not any(first - 1 <= line <= last for line in excuses):
            yield Finding(source.path, first, "function-length",
                          f"{name} has {length} lines, {FUNCTION_LINES_MAX} at most; or `// tidy: long: reason`")


# ---- (e) small things ----

_CODE_COMMENT = re.compile(r"""
      [\w:]+(?:(?:\.|->)\w+)*(?:<[^>]*>)?\(.*\);          # call(...);
    | (?:(?:const|auto|static|std::)\b)?[\w:<>,*&\s]*[\w\]>)]\s(?:[-+*/|&]?=)\s.*;   # x = ...;
    | (?:if|for|while|switch)\s*\(.*\)\s*\{?              # if (...) {
    | \}?\s*else\s*(?:if\s*\(.*\)\s*)?\{
    | (?:return|co_return|co_await)\s+[\w:.>()-]+;
    | \#\s*(?:include|define|if|ifdef|endif)\b.*
    """, re.X)


def check_words(source, _exists):
    path = source.path
    if path.endswith(".h") and not re.search(r"^#pragma once$", source.text, re.M):
        yield Finding(path, 1, "pragma-once", "a header needs #pragma once")
    for line, text in source.comments:
        for offset, part in enumerate(text.split("\n")):
            match = re.search(r"\b(TODO|FIXME|XXX)\b(?:\([^)]*\))?:?(.*)", part)
            if match and (match[1] != "TODO" or len(match[2].split()) < 4):
                yield Finding(path, line + offset, "todo", "say what and why: `TODO: words that give the reason`")
        if text.startswith("//") and source.lines[line - 1].lstrip().startswith("//"):
            body = text.lstrip("/")  # further in, it is an example in a header's comment
            if not body.startswith("  ") and _CODE_COMMENT.fullmatch(body.strip()):
                yield Finding(path, line, "dead-code", "commented-out code; git remembers it")
    for index, token in enumerate(source.tokens):
        following = [source.text_at(index + step) for step in range(1, 5)]
        if token.text == "using" and following[:3] == ["namespace", "std", ";"]:
            yield Finding(path, token.line, "using-namespace", "no `using namespace std`")
        if token.text == "catch" and following[:4] == ["(", "...", ")", "{"]:
            end = source.partner.get(index + 4, index + 4)
            body = {one.text for one in source.tokens[index + 4:end]}
            if not body & {"throw", "current_exception", "terminate", "abort"}:
                yield Finding(path, token.line, "catch-all", "`catch (...)` hides bugs; catch what you can handle")


def check_text(path, text):
    """For every kind of file."""
    lines = text.split("\n")
    if text and lines[-1]:
        yield Finding(path, len(lines), "final-newline", "the last line needs a newline")
    for number, line in enumerate(lines, 1):
        if "\t" in line:
            yield Finding(path, number, "tab", "use spaces")
        if line != line.rstrip():
            yield Finding(path, number, "trailing-blank", "blank at the end of the line")
        if len(line) > COLUMNS_MAX and "://" not in line:
            yield Finding(path, number, "columns", f"{len(line)} columns, {COLUMNS_MAX} at most")


def check_readmes(root):
    base = os.path.join(root, "src")
    for folder in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        full = os.path.join(base, folder)
        if not os.path.isdir(full) or folder == "__pycache__":
            continue
        files = os.listdir(full)
        if files and "README.md" not in files:
            yield Finding(f"src/{folder}/README.md", 1, "readme",
                          "missing: what lives here, what may be included, where to start reading")
        if folder not in LAYERS and folder not in NO_CODE_FOLDERS and not any(f.endswith(CPP) for f in files):
            yield Finding(f"src/{folder}", 1, "layer", "unknown folder; add it to LAYERS in tools/tidy.py")


CHECKS = [check_layers, check_banned, check_pure, check_coroutines, check_sizes, check_words]


def check_file(path, text, exists=lambda path: False):
    """All findings in one file; `path` is relative to the root, `exists` answers for other files."""
    findings = list(check_text(path, text))
    if path.endswith(CPP):
        source = Source(path, text)
        for check in CHECKS:
            findings.extend(check(source, exists))
    return sorted(findings, key=lambda one: (one.path, one.line, one.rule))


def find_files(root):
    for top in CODE_FOLDERS:
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders[:] = sorted(one for one in folders if one not in {"__pycache__", "node_modules", "dist"})
            for file in sorted(files):
                if file.endswith(CPP + SCRIPTS):
                    yield os.path.relpath(os.path.join(folder, file), root)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("paths", nargs="*", help="files to check; default: the whole tree")
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    options = parser.parse_args()
    root = os.path.abspath(options.root)
    paths = [os.path.relpath(os.path.abspath(path), root) for path in options.paths] or list(find_files(root))

    findings = [] if options.paths else list(check_readmes(root))
    for path in paths:
        try:
            with open(os.path.join(root, path), encoding="utf-8", newline="") as file:
                text = file.read()
        except UnicodeDecodeError:
            findings.append(Finding(path, 1, "utf-8", "not UTF-8 text"))
            continue
        findings += check_file(path, text, lambda other: os.path.exists(os.path.join(root, other)))
    for finding in findings:
        print(finding)
    errors = sum(finding.rule != "warning" for finding in findings)
    if errors:
        print(f"tidy: {errors} finding{'s' * (errors > 1)} in {len(paths)} files", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
