#include "deploy/head_unit.h"

#include <fmt/format.h>

#include "client/supervision.h"
#include "core/hash.h"
#include "core/text.h"
#include "provider/node_scripts.h"

namespace rubato::cli {
namespace {

// As systemd reads paths in a unit.
std::string unit_path(const std::string& path) {
  std::string out;
  for (const char c : path) out += c == '%' ? std::string("%%") : std::string(1, c);
  return out;
}

std::string unit_word(const std::string& path) {
  std::string out = "\"";
  for (const char c : unit_path(path)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '$' ? std::string("$$") : std::string(1, c);
  }
  return out + "\"";
}

std::string begin(const HeadUnit& unit) {
  return provider::lingering_script() +
         fmt::format("rb_unit={}\nrb_units=${{XDG_CONFIG_HOME:-$HOME/.config}}/systemd/user\n", shell_quote(unit.name));
}

}  // namespace

HeadUnit head_unit(const std::string& program, const std::string& cluster, const std::string& dir) {
  RunningHash hash;
  hash.add(dir);
  HeadUnit unit;
  unit.name = fmt::format("rubato-head-{}-{:08x}.service", cluster, hash.value() & 0xffffffff);
  unit.program = program;
  unit.dir = dir;
  return unit;
}

// KillMode: agents and their workers live in the same group, and outlive a head. OOMPolicy: so do they outlive one of
// them that the kernel kills.
std::string unit_text(const HeadUnit& unit) {
  const std::string folder = supervisor_folder(unit.dir);
  return fmt::format(
      "[Unit]\nDescription=Rubato keeps the head in {}\nStartLimitIntervalSec=0\n\n"
      "[Service]\nType=forking\nPIDFile={}/daemon.pid\nExecStart={} daemon start {} supervise --dir {}\n"
      "Restart=on-failure\nRestartSec=200ms\nTimeoutStopSec=15\nKillMode=process\nOOMPolicy=continue\n\n"
      "[Install]\nWantedBy=default.target\n",
      unit_path(unit.dir), unit_path(folder), unit_word(unit.program), unit_word(folder), unit_word(unit.dir));
}

std::string start_unit_script(const HeadUnit& unit, bool ask) {
  return begin(unit) + (ask ? "has_manager && ask_to_linger\n" : "") + R"sh(
has_manager && lingers || exit 3
mkdir -p "$rb_units" && cat >"$rb_units/$rb_unit" && systemctl --user daemon-reload &&
  systemctl --user enable --quiet "$rb_unit" && systemctl --user start "$rb_unit" && exit 0
systemctl --user disable --quiet "$rb_unit"; rm -f "$rb_units/$rb_unit"; systemctl --user daemon-reload
exit 1
)sh";
}

std::string stop_unit_script(const HeadUnit& unit) { return begin(unit) + "systemctl --user stop \"$rb_unit\"\n"; }

std::string remove_unit_script(const HeadUnit& unit) {
  return begin(unit) + R"sh(
[ -e "$rb_units/$rb_unit" ] || exit 0
systemctl --user disable --quiet "$rb_unit"
rm -f "$rb_units/$rb_unit"
systemctl --user daemon-reload
)sh";
}

}  // namespace rubato::cli
