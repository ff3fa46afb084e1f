#!/usr/bin/env python3
"""Tests of tidy.py: each rule has samples that must be caught and samples that must pass."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tidy

HEADER = "#pragma once\n"


def rules(text, path="src/agent/sample.cc", exists=()):
    return [one.rule for one in tidy.check_file(path, text, lambda other: other in exists)]


def inside(statement):
    """A statement as the body of a coroutine."""
    return f"Task<int> work(World& world) {{\n  {statement}\n  co_return 1;\n}}\n"


class Case(unittest.TestCase):
    def caught(self, rule, text, path="src/agent/sample.cc", exists=()):
        self.assertIn(rule, rules(text, path, exists), text)

    def passes(self, text, path="src/agent/sample.cc", exists=()):
        self.assertEqual([], rules(text, path, exists), text)


class Layers(Case):
    def test_an_include_that_points_up(self):
        for path, name in [
            ("src/core/a.cc", "world/world.h"), ("src/world/a.cc", "model/ids.h"), ("src/model/a.cc", "world/world.h"),
            ("src/elastic/a.cc", "agent/agent.h"), ("src/elastic/a.cc", "world/clock.h"),
            ("src/os/a.cc", "model/ids.h"), ("src/sim/a.cc", "agent/agent.h"), ("src/agent/a.cc", "os/runtime.h"),
            ("src/agent/a.cc", "cli/cli.h"), ("src/head/a.cc", "sim/sim.h"), ("src/elastic/a_test.cc", "agent/agent.h"),
            ("src/main.cc", "core/error.h"),
            ("src/elastic/a.cc", "policy/allocate.h"), ("src/agent/a.cc", "head/head.h"),
            ("src/terminal/a.cc", "client/session.h"), ("src/terminal/a.cc", "os/files.h"),
            ("src/terminal/a_test.cc", "cli/testing.h"), ("src/client/a.cc", "deploy/cluster_tools.h"),
            ("src/client/a.cc", "cli/cli.h"), ("src/deploy/a.cc", "daemon/head_command.h"),
            ("src/deploy/a.cc", "cli/commands.h"), ("src/daemon/a.cc", "deploy/head_start.h"),
            ("src/daemon/a.cc", "cli/commands.h"), ("src/head/a.cc", "client/api.h"), ("src/main.cc", "daemon/a.h"),
        ]:
            self.caught("layer", f'#include "{name}"\n', path)

    def test_an_include_that_points_down(self):
        for path, name in [
            ("src/agent/a.cc", "elastic/view.h"), ("src/agent/a.cc", "world/world.h"), ("src/cli/a.cc", "os/runtime.h"),
            ("src/os/a.cc", "world/world.h"), ("src/sim/a_test.cc", "agent/agent.h"),
            ("src/agent/a_test.cc", "sim/sim.h"),
            ("src/core/a.cc", "core/error.h"), ("src/policy/a.cc", "elastic/view.h"), ("src/main.cc", "cli/cli.h"),
            ("src/cli/a.cc", "build_stamp.h"), ("tests/tools/a.cc", "os/runtime.h"),
            ("src/cli/a.cc", "daemon/head_command.h"), ("src/deploy/a.cc", "client/session.h"),
            ("src/deploy/a_test.cc", "cli/testing.h"), ("src/daemon/a.cc", "client/head_end.h"),
            ("src/client/a.cc", "terminal/flags.h"),
        ]:
            self.passes(f'#include "{name}"\n', path)

    def test_folders(self):
        self.caught("layer", "int a;\n", "src/util/a.cc")
        self.caught("layer", "int a;\n", "src/a.cc")
        self.caught("layer", '#include "sample.h"\n')
        self.caught("layer", '#include "util/a.h"\n')

    def test_system_headers_of_os(self):
        self.caught("layer", "#include <boost/asio.hpp>\n")
        self.passes("#include <boost/asio.hpp>\n", "src/os/net.cc")
        self.passes("#include <vector>\n")

    def test_includes_in_comments_do_not_count(self):
        self.passes('//  #include "os/runtime.h"\n/* #include "os/runtime.h" */\n')

    def test_own_header_first(self):
        text = '#include <vector>\n\n#include "agent/sample.h"\n'
        self.caught("own-header", text, exists=["src/agent/sample.h"])
        self.passes(text)
        self.passes('#include "agent/sample.h"\n\n#include <vector>\n', exists=["src/agent/sample.h"])


class Banned(Case):
    def test_each_kind(self):
        for kind, statement in [
            ("clock", "auto t = std::chrono::steady_clock::now();"), ("clock", "auto t = time(nullptr);"),
            ("clock", "if (::clock_gettime(CLOCK_REALTIME, &t)) return;"), ("clock", "x = std::time(nullptr);"),
            ("clock", "return a && time(nullptr) > 3;"), ("clock", "using Clock = std::chrono::system_clock;"),
            ("thread", "std::thread t(f);"), ("thread", "std::mutex m;"), ("thread", "auto f = std::async(g);"),
            ("thread", "std::this_thread::yield();"), ("random", "std::random_device d;"),
            ("random", "int x = rand();"),
            ("socket", "int s = socket(AF_INET, SOCK_STREAM, 0);"), ("socket", "if (connect(s, &a, n) < 0) return;"),
            ("socket", "::bind(s, &a, n);"), ("environment", 'const char* p = std::getenv("HOME");'),
            ("process", "if (fork() == 0) return;"), ("process", "execvp(a, b);"),
            ("filesystem", "if (std::filesystem::exists(p)) return;"), ("filesystem", "fs::remove_all(p);"),
            ("filesystem", "for (auto& one : std::filesystem::directory_iterator(p)) f(one);"),
            ("sleep", "::usleep(3);"), ("sleep", "sleep(3);"),
            ("unordered", "std::unordered_map<int, int> m;"), ("output", 'std::cout << "x";'),
            ("output", 'printf("x");'), ("output", 'fmt::print("x");'),
        ]:
            self.caught(f"banned-{kind}", f"void f() {{ {statement} }}\n")
            self.passes(f"void f() {{ {statement} }}\n", "src/os/sample.cc")

    def test_our_own_functions_of_the_same_names(self):
        self.passes("Task<ConnectResult> connect(Endpoint e);\nRandom fork() { return Random(next()); }\n")
        self.passes("void f() { network.connect(e); p->bind(x); Sleep sleep(loop, at); clock.time(); }\n")
        self.passes("Instant Clock::time() { return now_; }\nvirtual Duration& time() = 0;\nbool* sleep();\n")
        self.passes(inside("auto c = co_await connect(e);"))
        self.passes("void Hub::connect(Peer p) { }\nvoid Hub::f() { connect(p); }\n")
        self.caught("banned-socket", "void Hub::connect(Peer p) { }\nvoid Hub::f() { ::connect(p); }\n")
        self.passes("auto f = std::bind(g, 1);\n")

    def test_words_in_strings_and_comments(self):
        self.passes('// std::thread, rand() and time()\nconst char* s = "std::thread rand()";\n')
        self.passes('const char* s = R"x(std::cout << rand(); ")" )x";\n')
        self.passes("char c = '\"'; int n = 1'000'000;  // \" std::thread\n")

    def test_exceptions(self):
        self.passes('void f() { auto* p = getenv("PET_NNODES"); std::cout << p; }\n', "src/cli/run.cc")
        self.passes('void f() { fprintf(stderr, "x"); }\n', "src/core/error.cc")
        self.passes('void f() { auto* p = getenv("RUBATO_SEED"); }\n', "src/sim/sim_test.cc")
        self.caught("banned-thread", "std::thread t;\n", "src/cli/run.cc")
        self.passes("auto p = std::filesystem::absolute(typed);\n", "src/cli/cp_command.cc")
        for path in ("src/cli/run_flags.cc", "src/client/session.cc", "src/deploy/up_command.cc"):
            self.caught("banned-filesystem", "auto p = std::filesystem::absolute(typed);\n", path)
        self.passes("auto p = std::filesystem::path(a).filename();\n")

    def test_pure_layers_have_no_coroutines(self):
        self.caught("pure", "Task<int> f();\n", "src/model/a.cc")
        self.caught("pure", inside("co_await g();"), "src/reconcile/a.cc")
        self.passes(inside("co_await g();"))
        self.passes("struct Task { int n; };\n", "src/model/a.cc")


class Coroutines(Case):
    def test_braced_temporary(self):
        for statement in ["co_await f({.a = 1});", "co_await f(Agg{1, 2});", "auto x = co_await g.f(1, {2}, 3);",
                          "if (co_await f(std::move(a), Agg{})) return;", "co_await f(h(Agg{1}));",
                          "co_await f(\n    1,\n    {2});", "co_return co_await f({});"]:
            self.caught("await-aggregate", inside(statement))

    def test_named_locals(self):
        for statement in ["Agg a{1, 2};\n  co_await f(std::move(a));", "g({1, 2});\n  co_await f();",
                          "if (co_await f(x)) { g({1}); }", "for (auto& x : co_await f()) { h(Agg{1}); }",
                          "co_await Awaiter{loop, at};", "while (co_await f()) {\n  }", "f(co_await g(1), Agg{2});"]:
            self.passes(inside(statement))

    def test_capturing_lambda_inside_await(self):
        for statement in ["co_await f([&] { return 1; });", "co_await f(1, [x](int y) -> int { return x + y; });",
                          "co_await f([this, x = std::move(y)]() mutable { g(x); });"]:
            self.caught("await-lambda", inside(statement))

    def test_lambdas_that_are_right(self):
        self.passes(inside("co_await f([] { return Agg{1}; });"))
        self.passes(inside("co_await f([](std::map<int, int> m) -> std::pair<int, int> { return {1, 2}; });"))
        self.passes(inside("auto call = [&] { return 1; };\n  co_await f(call);"))
        self.passes(inside("co_await f(table[index], x[0]);"))

    def test_coroutine_lambda_with_captures(self):
        self.caught("coroutine-lambda", "void f() {\n  auto t = [&]() -> Task<void> { co_await g(); };\n}\n")
        self.caught("coroutine-lambda", "void f() {\n  scope.spawn([this]() -> Task<void> { co_return; }());\n}\n")
        self.passes("void f() {\n  scope.spawn([](W& w) -> Task<void> { co_await w.g(); }(world));\n}\n")
        self.passes("void f() {\n  auto make = [&] { return [](W& w) -> Task<void> { co_await w.g(); }(world); };\n}\n")

    def test_await_in_a_statement_expression(self):
        self.caught("await-statement", inside("int x = ({ auto y = co_await f(); y; });"))
        self.caught("await-statement", "#define TRY(x) \\\n  ({ auto r = (x); r; })\n")
        self.passes(inside("int x = ({ auto y = f(); y; });"))
        self.passes("#define CHECK(x) \\\n  do { if (!(x)) fail({1, 2}); } while (false)\n")


class Sizes(Case):
    @staticmethod
    def function(head, lines):
        return f"{head} {{\n" + "  step();\n" * lines + "}\n"

    def test_file(self):
        self.caught("file-length", "int a;\n" * 801)
        self.assertEqual(["warning"], rules("int a;\n" * 601))
        self.passes("int a;\n" * 600)

    def test_function(self):
        for head in ["void f()", "template <class T>\nTask<T> g(T a) const", "TEST(Spot, Shrinks)", "auto h() -> int",
                     "namespace a {\nclass B : public C {\n public:\n  B() : a_{1}, b_(2)"]:
            close = "};\n}\n" if head.startswith("namespace") else ""
            self.caught("function-length", self.function(head, 75) + close)
            self.passes(self.function(head, 60) + close)

    def test_long_function_with_a_reason(self):
        self.passes("// tidy: long: one table of flags\n" + self.function("void f()", 100))
        self.caught("function-length", "// tidy: long:\n" + self.function("void f()", 100))

    def test_long_scopes_and_tables_are_no_functions(self):
        self.passes("namespace a {\nstruct B {\n" + "  int x;\n" * 100 + "};\n}\n")
        self.passes("enum class E {\n" + "  kA,\n" * 100 + "};\n")
        self.passes("const int kTable[] = {\n" + "  1,\n" * 100 + "};\n")
        self.passes("class A final : public B<int> {\n" + "  void f() { g(); }\n" * 100 + "};\n")

    def test_columns(self):
        self.caught("columns", "// " + "x" * 118 + "\n")
        self.passes("// " + "é" * 117 + "\n")
        self.passes("// https://" + "x" * 118 + "\n")


class Words(Case):
    def test_blanks(self):
        self.caught("tab", "\tint a;\n")
        self.caught("trailing-blank", "int a; \n")
        self.caught("trailing-blank", "int a;\r\n")
        self.caught("final-newline", "int a;")
        self.caught("tab", "x = 1\t\n", "tools/a.py")
        self.passes("int a;\n")
        self.passes("")

    def test_pragma_once(self):
        self.caught("pragma-once", "int a;\n", "src/agent/a.h")
        self.passes(HEADER + "int a;\n", "src/agent/a.h")

    def test_todo(self):
        self.caught("todo", "// TODO\n")
        self.caught("todo", "/* x\n   TODO: fix */\n")
        self.caught("todo", "// FIXME: this is not our word for it\n")
        self.passes("// TODO: use pidfd_send_signal once Debian 13 is the oldest kernel we meet\n")

    def test_catch_all(self):
        self.caught("catch-all", "void f() {\n  try { g(); } catch (...) { return; }\n}\n")
        self.passes("void f() {\n  try { g(); } catch (...) { h(); throw; }\n}\n")
        self.passes("void f() {\n  try { g(); } catch (const Error&) { }\n}\n")

    def test_dead_code(self):
        for comment in ["world.clock.now();", "int x = 3;", "if (x > 3) {", "} else {", "return x;",
                        "#include <vector>", "for (auto& x : y) {"]:
            self.caught("dead-code", f"// {comment}\n")
        for comment in ["The child runs at once (see below);", "no item is lost;", "return to the caller;", "x = 3",
                        "  log.warning(\"an example\");", "nullopt: closed; see pop()", "so f() is called first;",
                        "if the agent dies (see run.cc), we go on"]:
            self.passes(f"// {comment}\n")
        self.passes("int a = 1;  // b = 2;\n")

    def test_using_namespace(self):
        self.caught("using-namespace", "using namespace std;\n")
        self.passes("using namespace std::chrono_literals;\n")


class CommandLine(Case):
    def run_tidy(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "wb") as file:
                    file.write(text.encode() if isinstance(text, str) else text)
            return subprocess.run([sys.executable, tidy.__file__, "--root", root], capture_output=True, text=True)

    def test_clean_tree(self):
        done = self.run_tidy({"src/core/a.cc": "int a;\n", "src/core/README.md": "Base.\n"})
        self.assertEqual((0, "", ""), (done.returncode, done.stdout, done.stderr))

    def test_findings_and_warnings(self):
        done = self.run_tidy({"src/core/a.cc": "int a;\n\n\tint b;\n", "src/core/README.md": "Base.\n"})
        self.assertEqual((1, "src/core/a.cc:3: tab: use spaces\n"), (done.returncode, done.stdout))
        done = self.run_tidy({"src/core/a.cc": "int a;\n" * 700, "src/core/README.md": "Base.\n"})
        self.assertEqual(0, done.returncode)
        self.assertIn("warning", done.stdout)

    def test_readme_and_folders(self):
        done = self.run_tidy({"src/core/a.cc": "int a;\n"})
        self.assertIn("src/core/README.md:1: readme:", done.stdout)
        done = self.run_tidy({"src/odds/x.txt": "", "src/odds/README.md": ""})
        self.assertIn("src/odds:1: layer:", done.stdout)

    def test_bytes_that_are_no_text(self):
        done = self.run_tidy({"src/core/a.cc": b"\xff\xfe\n", "src/core/README.md": "Base.\n"})
        self.assertIn("src/core/a.cc:1: utf-8:", done.stdout)


if __name__ == "__main__":
    unittest.main()
