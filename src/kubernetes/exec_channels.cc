#include "kubernetes/exec_channels.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/json_bounds.h"
#include "core/text.h"
#include "kubernetes/client.h"

namespace rubato::kubernetes {
namespace {

using nlohmann::json;

constexpr int kExitCodeMax = 255;
// From 1.30 on servers open the connection first, and say here what older ones refuse it with.
constexpr std::string_view kNotReached[] = {"unable to upgrade connection", "error dialing backend",
                                            "container not found", "connection refused", "i/o timeout"};

// The first line on the pipe is the number of the loop's shell: when the command ends first, the loop would wait for
// input for ever, and the shell for the loop. `read` and dd take no byte more than they are asked for; busybox's head
// does. A dd that cannot wait for whole blocks takes them byte by byte. A shell prints nothing about one that ended by
// SIGPIPE.
constexpr const char* kFramedInput =
    "{ sh -c 'echo $PPID'; "
    "if [ \"$(printf ab | dd bs=2 count=1 iflag=fullblock)\" = ab ]; "
    "then take() { dd bs=\"$1\" count=1 iflag=fullblock; }; else take() { dd bs=1 count=\"$1\"; }; fi; "
    "while IFS= read -r n && [ \"$n\" -gt 0 ]; do take \"$n\"; done; } 2>/dev/null | "
    "{ IFS= read -r p; \"$@\"; c=$?; kill -PIPE \"$p\" 2>/dev/null; exit $c; }";

}  // namespace

ExecEnd read_exec_status(std::string_view text) {
  ExecEnd out;
  const json document = beyond_bounds(text, JsonBounds()) ? json() : json::parse(text, nullptr, false);
  if (!document.is_object()) {
    out.message = "the server does not say how the command ended";
    return out;
  }
  out.message = text_in(document, "message");
  if (text_in(document, "status") == "Success") {
    out.ended = true;
    return out;
  }
  for (const json& cause : list_in(object_in(document, "details"), "causes")) {
    if (text_in(cause, "reason") != "ExitCode") continue;
    const std::string code = text_in(cause, "message");
    const auto [end, error] = std::from_chars(code.data(), code.data() + code.size(), out.exit_code);
    out.ended = error == std::errc() && end == code.data() + code.size() && out.exit_code > 0 &&
                out.exit_code <= kExitCodeMax;
  }
  if (!out.ended) out.exit_code = 0;
  const std::string text_lower = to_lower(out.message);
  for (const std::string_view sentence : kNotReached) {
    out.unreached = out.unreached || (!out.ended && text_lower.find(sentence) != std::string::npos);
  }
  if (out.message.empty()) out.message = "the command could not be run";
  return out;
}

std::string resize_message(int columns, int rows) {
  return fmt::format(R"({{"Width":{},"Height":{}}})", columns, rows);
}

std::vector<std::string> with_framed_input(const std::vector<std::string>& argv) {
  std::vector<std::string> out = {"sh", "-c", kFramedInput, "sh"};
  out.insert(out.end(), argv.begin(), argv.end());
  return out;
}

std::string framed_piece(std::string_view bytes) { return fmt::format("{}\n{}", bytes.size(), bytes); }

}  // namespace rubato::kubernetes
