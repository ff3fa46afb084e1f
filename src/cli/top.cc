#include "cli/top.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "terminal/document.h"
#include "terminal/render_cluster.h"
#include "terminal/render_events.h"
#include "terminal/render_jobs.h"

namespace rubato::cli {
namespace {

using nlohmann::json;
using Kind = TopRequest::Kind;
using Mode = TopState::Mode;

constexpr size_t kLinesAbove = 4;  // the cluster's two, the tabs, the heading of the table
constexpr size_t kLinesBelow = 1;  // keys, or what is typed

constexpr std::string_view kHelp = R"(j k, arrows     move            :jobs :nodes :events   change the view
g G             first, last     tab                    the next view
ctrl-f ctrl-b   a page          /text                  only rows that hold text; esc shows all
enter, d        describe        ctrl-d                 stop the job (asks)
l               logs            esc, q                 back
y               why             q, ctrl-c, :q          quit
)";

std::string row_id(TopList list, const json& row) {
  return list == TopList::kEvents ? fmt::format("{}", int_in(row, "offset")) : raw_in(row, "id");
}

const json& all_rows(TopList list, const TopData& data) {
  switch (list) {
    case TopList::kJobs:
      return list_in(data.status, "jobs");
    case TopList::kNodes:
      return list_in(data.status, "nodes");
    case TopList::kEvents:
      return list_in(data.events, "events");
  }
  return list_in(data.events, "events");
}

// The rows that the filter lets through; it looks at what people see.
json shown_rows(const TopState& state, const TopData& data) {
  json out = json::array();
  const std::string& filter = state.mode == Mode::kFilter ? state.typed : state.filter;
  const std::string wanted = to_lower(filter);
  for (const json& row : all_rows(state.list, data)) {
    std::string seen;
    for (const char* key : {"id", "name", "phase", "type", "reason", "why", "text", "owner"}) {
      seen += to_lower(text_in(row, key)) + "\n";
    }
    if (seen.find(wanted) != std::string::npos) out.push_back(row);
  }
  return out;
}

size_t selected_index(const TopState& state, const json& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (row_id(state.list, rows[i]) == state.selected) return i;
  }
  return 0;
}

// The first row on the screen when this one must be seen.
size_t first_shown(size_t selected, size_t count, size_t room) {
  if (count <= room || selected < room / 2) return 0;
  return std::min(selected - room / 2, count - room);
}

void change_list(TopState& state, TopList list) {
  state.list = list;
  state.selected.clear();
  state.filter.clear();
  state.mode = Mode::kList;
}

TopRequest run_command(TopState& state) {
  const std::string word(trim(state.typed));
  state.mode = Mode::kList;
  const auto begins = [&](std::string_view name) { return !word.empty() && name.starts_with(word); };
  if (begins("jobs")) {
    change_list(state, TopList::kJobs);
  } else if (begins("nodes")) {
    change_list(state, TopList::kNodes);
  } else if (begins("events")) {
    change_list(state, TopList::kEvents);
  } else if (word == "q" || word == "quit" || word == "q!") {
    return {Kind::kQuit};
  } else if (!word.empty()) {
    state.message = fmt::format("no view is called '{}': jobs, nodes or events", clean(word));
  }
  return {Kind::kRefresh};
}

TopRequest press_typing(TopState& state, const std::string& key) {
  if (key == "esc" || key == "ctrl-c") {
    if (state.mode == Mode::kFilter) state.filter.clear();
    state.mode = Mode::kList;
  } else if (key == "enter") {
    if (state.mode == Mode::kCommand) return run_command(state);
    state.filter = state.typed;
    state.mode = Mode::kList;
  } else if (key == "backspace") {
    // A character, not a byte.
    while (!state.typed.empty() && (static_cast<unsigned char>(state.typed.back()) & 0xc0) == 0x80) {
      state.typed.pop_back();
    }
    if (!state.typed.empty()) state.typed.pop_back();
  } else if (display_width(key) <= 2 && (key.size() == 1 || static_cast<unsigned char>(key[0]) >= 0x80)) {
    state.typed += key;
  }
  return {};
}

TopRequest press_asking(TopState& state, const std::string& key) {
  state.mode = Mode::kList;
  if (key == "y" || key == "Y") return state.asked;
  state.message = "nothing was done";
  return {};
}

TopRequest press_text(TopState& state, const std::string& key, size_t rows) {
  const size_t room = rows > 2 ? rows - 2 : 1;
  const size_t last = state.lines.size() > room ? state.lines.size() - room : 0;
  if (key == "q" || key == "esc" || key == "left") {
    state.mode = Mode::kList;
    return {Kind::kRefresh};
  }
  if (key == "ctrl-c") return {Kind::kQuit};
  if (key == "j" || key == "down") state.scroll = std::min(state.scroll + 1, last);
  if ((key == "k" || key == "up") && state.scroll > 0) --state.scroll;
  if (key == "ctrl-f" || key == "page-down" || key == " ") state.scroll = std::min(state.scroll + room, last);
  if (key == "ctrl-b" || key == "page-up") state.scroll -= std::min(state.scroll, room);
  if (key == "g" || key == "home") state.scroll = 0;
  if (key == "G" || key == "end") state.scroll = last;
  return {};
}

// A request about the selected row; a note when there is nothing to ask about it.
TopRequest about_row(TopState& state, const json& rows, Kind kind) {
  if (rows.empty()) return {};
  const json& row = rows[selected_index(state, rows)];
  if (state.list != TopList::kEvents) return {kind, raw_in(row, "id"), state.list == TopList::kJobs};
  const std::string job = raw_in(row, "job"), node = raw_in(row, "node");
  if (job.empty() && node.empty()) {
    state.message = "this event is about no job and no node";
    return {};
  }
  return {kind, job.empty() ? node : job, !job.empty()};
}

TopRequest job_only(TopState& state, TopRequest request, std::string_view what) {
  if (request.kind == Kind::kNone || request.is_job) return request;
  state.message = fmt::format("only jobs have {}", what);
  return {};
}

void ask_to_stop(TopState& state, const json& rows) {
  const TopRequest request = job_only(state, about_row(state, rows, Kind::kStop), "an end that can be asked for");
  if (request.kind == Kind::kNone) return;
  state.asked = request;
  state.question = fmt::format("stop {}? y/n", clean(request.id));
  state.mode = Mode::kAsking;
}

void move_to(TopState& state, const json& rows, size_t index) {
  if (!rows.empty()) state.selected = row_id(state.list, rows[std::min(index, rows.size() - 1)]);
}

TopRequest press_list(TopState& state, const TopData& data, const std::string& key, size_t rows_high) {
  const json rows = shown_rows(state, data);
  const size_t at = selected_index(state, rows);
  const size_t page = rows_high > kLinesAbove + kLinesBelow ? rows_high - kLinesAbove - kLinesBelow : 1;
  if (key == "q" || key == "ctrl-c") return {Kind::kQuit};
  if (key == "esc") state.filter.clear();
  if (key == "j" || key == "down") move_to(state, rows, at + 1);
  if (key == "k" || key == "up") move_to(state, rows, at > 0 ? at - 1 : 0);
  if (key == "ctrl-f" || key == "page-down") move_to(state, rows, at + page);
  if (key == "ctrl-b" || key == "page-up") move_to(state, rows, at - std::min(at, page));
  if (key == "g" || key == "home") move_to(state, rows, 0);
  if (key == "G" || key == "end") move_to(state, rows, rows.size());
  if (key == "tab") change_list(state, static_cast<TopList>((static_cast<int>(state.list) + 1) % 3));
  if (key == ":" || key == "/") {
    state.mode = key == ":" ? Mode::kCommand : Mode::kFilter;
    state.typed.clear();
  }
  if (key == "?") show_text(state, {}, "Keys", std::string(kHelp), rows_high, false);
  if (key == "enter" || key == "d") return about_row(state, rows, Kind::kDescribe);
  if (key == "y") return about_row(state, rows, Kind::kWhy);
  if (key == "l") return job_only(state, about_row(state, rows, Kind::kLogs), "logs");
  if (key == "ctrl-d") ask_to_stop(state, rows);
  return {};
}

template <class Document>
std::vector<Document> documents(const json& rows) {
  std::vector<Document> out;
  for (const json& row : rows) out.push_back(read_document<Document>(row));
  return out;
}

std::vector<std::string> table_lines(const TopState& state, const json& rows, const Style& look) {
  if (state.list == TopList::kJobs) return jobs_table(documents<api::JobSummary>(rows), look).lines(look);
  if (state.list == TopList::kNodes) return nodes_table(documents<api::Node>(rows), look).lines(look);
  std::vector<std::string> out{
      paint(fit("TIME                 TYPE                WHAT", look.width), Hue::kBold, look.colour)};
  for (const json& row : rows) {
    std::string line = event_line(read_document<api::Event>(row), look);
    line.pop_back();
    out.push_back(std::move(line));
  }
  return out;
}

std::string tabs(const TopState& state, const TopData& data, const Style& look) {
  std::string out;
  const auto tab = [&](TopList list, std::string_view name) {
    // Events are asked for only while they are looked at.
    const std::string sentence = list == TopList::kEvents ? fmt::format(" {} ", name)
                                                       : fmt::format(" {} {} ", name, all_rows(list, data).size());
    out += list == state.list && look.colour ? fmt::format("\x1b[7m{}\x1b[0m", sentence)
           : list == state.list              ? fmt::format("[{}]", trim(sentence))
                                             : sentence;
    out += " ";
  };
  // A screen that is too narrow for all of them has no room for any.
  if (look.width > 0 && look.width < 40) return fit(":jobs :nodes :events", look.width);
  tab(TopList::kJobs, "jobs");
  tab(TopList::kNodes, "nodes");
  tab(TopList::kEvents, "events");
  const std::string& filter = state.mode == Mode::kFilter ? state.typed : state.filter;
  if (!filter.empty()) {
    out += paint(fit(" filter: " + clean(filter), look.width > 40 ? look.width - 40 : 0), Hue::kYellow, look.colour);
  }
  return out;
}

std::string bottom(const TopState& state, const TopData& data, const Style& look) {
  switch (state.mode) {
    case Mode::kCommand:
      return ":" + clean(state.typed) + "_";
    case Mode::kFilter:
      return "/" + clean(state.typed) + "_";
    case Mode::kAsking:
      return paint(fit(state.question, look.width), Hue::kYellow, look.colour);
    case Mode::kList:
    case Mode::kText:
      break;
  }
  if (!state.message.empty()) return paint(fit(state.message, look.width), Hue::kYellow, look.colour);
  if (!data.problem.empty()) return paint(fit(clean(data.problem), look.width), Hue::kRed, look.colour);
  const std::string keys =
      state.mode == Mode::kText
          ? "j k move · g G ends · esc back"
          : "j k move · enter describe · l logs · y why · ctrl-d stop · / filter · ? help · q quit";
  return paint(fit(keys, look.width), Hue::kDim, look.colour);
}

// Exactly `rows` lines, the last of them `foot`.
std::string frame(std::vector<std::string> lines, const std::string& foot, size_t rows) {
  lines.resize(rows > 0 ? rows - 1 : 0);
  lines.push_back(foot);
  return join(lines, "\n");
}

std::string draw_text(const TopState& state, const TopData& data, const Style& look, size_t rows) {
  std::vector<std::string> lines{paint(fit(state.title, look.width), Hue::kBold, look.colour)};
  for (size_t i = state.scroll; i < state.lines.size() && lines.size() + 1 < rows; ++i) {
    lines.push_back(fit(state.lines[i], look.width));
  }
  return frame(std::move(lines), bottom(state, data, look), rows);
}

}  // namespace

TopRequest press(TopState& state, const TopData& data, const std::string& key, size_t rows) {
  state.message.clear();
  switch (state.mode) {
    case Mode::kCommand:
    case Mode::kFilter:
      return press_typing(state, key);
    case Mode::kAsking:
      return press_asking(state, key);
    case Mode::kText:
      return press_text(state, key, rows);
    case Mode::kList:
      return press_list(state, data, key, rows);
  }
  return {};
}

void show_text(TopState& state, const TopRequest& source, std::string title, const std::string& text, size_t rows,
               bool again) {
  const size_t room = rows > 2 ? rows - 2 : 1;
  const auto last = [&] { return state.lines.size() > room ? state.lines.size() - room : 0; };
  const bool at_end = again && state.scroll >= last();
  state.mode = Mode::kText;
  state.title = std::move(title);
  state.source = source;
  state.lines.clear();
  const std::string whole(text);
  for (const std::string_view line : split(whole, '\n')) state.lines.push_back(clean(line));
  while (!state.lines.empty() && state.lines.back().empty()) state.lines.pop_back();
  // A log is read at its end, and stays there while it grows.
  const bool log = source.kind == Kind::kLogs;
  if (!again) state.scroll = log ? last() : 0;
  if (again && log && at_end) state.scroll = last();
  state.scroll = std::min(state.scroll, last());
}

std::string draw_top(const TopState& state, const TopData& data, const Style& look, size_t rows) {
  if (state.mode == Mode::kText) return draw_text(state, data, look, rows);
  std::vector<std::string> lines;
  const std::string heading = status_heading(read_document<api::Status>(data.status), {.now = look.now});
  for (const std::string_view line : split(heading, '\n')) {
    if (lines.size() < 2) lines.push_back(fit(line, look.width));
  }
  lines.push_back(tabs(state, data, look));
  const json shown = shown_rows(state, data);
  const size_t room = rows > kLinesAbove + kLinesBelow ? rows - kLinesAbove - kLinesBelow : 1;
  const size_t selected = selected_index(state, shown);
  const size_t first = first_shown(selected, shown.size(), room);
  const std::vector<std::string> coloured = table_lines(state, shown, look);
  const std::vector<std::string> plain = table_lines(state, shown, {.width = look.width, .now = look.now});
  lines.push_back(coloured.front());
  for (size_t i = first; i < shown.size() && i < first + room; ++i) {
    if (i != selected) {
      lines.push_back(coloured[i + 1]);
    } else if (look.colour) {
      lines.push_back("\x1b[7m" + pad(plain[i + 1], look.width) + "\x1b[0m");
    } else {
      lines.push_back(">" + fit(plain[i + 1], look.width > 0 ? look.width - 1 : 0));
    }
  }
  return frame(std::move(lines), bottom(state, data, look), rows);
}

}  // namespace rubato::cli
