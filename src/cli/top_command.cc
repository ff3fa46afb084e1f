// `rubato top`: drives the state machine of top.h with the terminal's keys and the head's documents.
#include "cli/top_command.h"

#include <fmt/format.h>

#include "cli/status_commands.h"
#include "cli/top.h"
#include "client/logs.h"
#include "client/session.h"
#include "os/terminal.h"
#include "terminal/document.h"
#include "terminal/render_cluster.h"
#include "terminal/render_events.h"
#include "terminal/render_jobs.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr Duration kRefresh = 1s;
// A screen must not hang on a head that does not answer.
constexpr Duration kTopPatience = 2s;
constexpr int kTopEvents = 200;
constexpr int kTopLogLines = 500;

class TopScreen {
 public:
  TopScreen(Session session, const Shell& shell) : session_(std::move(session)), shell_(shell) {
    data_.status = get(*session_.api, "status");  // an error here is better than an empty screen
  }

  int run() {
    os::Terminal terminal;
    WallTime due = shell_.now();
    while (true) {
      if (shell_.now() >= due) {
        refresh(terminal.size().rows);
        due = shell_.now() + std::chrono::duration_cast<std::chrono::microseconds>(kRefresh);
      }
      const os::Terminal::Size size = terminal.size();
      const Style look{.colour = shell_.colour, .width = size.columns, .now = shell_.now()};
      terminal.draw(draw_top(state_, data_, look, size.rows));
      const auto key = terminal.key(std::max<Duration>(due - shell_.now(), 1ms));
      if (!key) continue;
      if (*key == "eof") return 1;
      const TopRequest request = press(state_, data_, *key, size.rows);
      if (request.kind == TopRequest::Kind::kQuit) return 0;
      if (request.kind == TopRequest::Kind::kRefresh) due = shell_.now();
      answer(request, size.rows, false);
    }
  }

 private:
  json ask(std::string target, std::string method = "GET") {
    ApiRequest request;
    request.method = std::move(method);
    request.target = std::move(target);
    request.limit = kTopPatience;
    if (request.method == "POST") request.body = "{}";
    return session_.api->call(request);
  }

  void refresh(size_t rows) {
    try {
      data_.status = ask("status");
      if (state_.list == TopList::kEvents) data_.events = newest_first(ask(fmt::format("events?limit={}", kTopEvents)));
      data_.problem.clear();
    } catch (const Error& error) {
      data_.problem = error.message;
      return;
    }
    if (state_.mode == TopState::Mode::kText) answer(state_.source, rows, true);
  }

  static json newest_first(json events) {
    json reversed = json::array();
    const json& list = list_in(events, "events");
    for (auto it = list.rbegin(); it != list.rend(); ++it) reversed.push_back(*it);
    return {{"events", std::move(reversed)}};
  }

  void answer(const TopRequest& request, size_t rows, bool again) {
    using Kind = TopRequest::Kind;
    if (request.kind == Kind::kNone || request.kind == Kind::kQuit || request.kind == Kind::kRefresh) return;
    const Style look{.now = shell_.now()};
    const std::string path = (request.is_job ? "jobs/" : "nodes/") + url_part(request.id);
    try {
      if (request.kind == Kind::kStop) {
        ask(path + "/stop", "POST");
        state_.message = "stopping " + clean(request.id);
      } else if (request.kind == Kind::kWhy) {
        show_text(state_, request, "why " + clean(request.id),
                  why_text(read_document<api::Why>(ask(path + "/why")), look), rows, again);
      } else if (request.kind == Kind::kLogs) {
        show_text(state_, request, "logs of " + clean(request.id), log_tail(request.id), rows, again);
      } else {
        const json document = ask(path);
        const std::string text = request.is_job ? job_text(read_document<api::Job>(document), look)
                                                : node_text(read_document<api::Node>(document), look);
        show_text(state_, request, clean(request.id), text, rows, again);
      }
    } catch (const Error& error) {
      state_.message = error.message;
    }
  }

  std::string log_tail(const std::string& id) {
    std::string text;
    Shell quiet = shell_;
    quiet.out = [&](std::string_view piece) { text += piece; };
    LogQuery query;
    query.job = id;
    query.tail = kTopLogLines;
    print_logs(*session_.api, quiet, query);
    return text;
  }

  Session session_;
  const Shell& shell_;
  TopState state_;
  TopData data_;
};

}  // namespace

int top_command(const ParsedCommand& parsed, const Shell& shell) {
  if (shell.width == 0) {
    throw Error(ErrorCode::kUsage, "rubato top needs a terminal", "", "for scripts there is rubato status --json");
  }
  return TopScreen(open_session(parsed, shell), shell).run();
}

}  // namespace rubato::cli
