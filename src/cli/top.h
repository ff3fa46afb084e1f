// The live screen of `rubato top` as a state machine: keys in, requests and a frame out. Pure.
//
//            :jobs :nodes :events                       enter d l y ?
//   list ◀───────────────────────▶ list      list ─────────────────────▶ text
//     │ ':' '/'            ctrl-d   ▲          ▲         esc q            │
//     ▼                      ▼      │          └──────────────────────────┘
//   typing ──enter, esc──▶ asking ──y, n
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "terminal/layout.h"

namespace rubato::cli {

enum class TopList { kJobs, kNodes, kEvents };

// What the head said last.
struct TopData {
  nlohmann::json status;
  nlohmann::json events;
  std::string problem;  // why there is nothing newer
};

// What the driver is to do.
struct TopRequest {
  enum class Kind { kNone, kQuit, kRefresh, kDescribe, kLogs, kWhy, kStop };
  Kind kind = Kind::kNone;
  std::string id;
  bool is_job = false;
};

struct TopState {
  TopList list = TopList::kJobs;
  std::string selected;  // id of the row, so that it stays when rows come and go
  std::string filter;

  enum class Mode { kList, kText, kCommand, kFilter, kAsking };
  Mode mode = Mode::kList;
  std::string typed;     // while in kCommand and kFilter
  TopRequest asked;      // while in kAsking
  std::string question;  // while in kAsking
  std::string message;   // until the next key

  // In kText.
  std::string title;
  std::vector<std::string> lines;
  size_t scroll = 0;
  TopRequest source;  // what the text came from: asked again at each refresh
};

// `rows` is the height of the screen.
TopRequest press(TopState& state, const TopData& data, const std::string& key, size_t rows);

// Shows the answer to a request; `again` keeps the place in a text that is already shown.
void show_text(TopState& state, const TopRequest& source, std::string title, const std::string& text, size_t rows,
               bool again);

// Lines with '\n' between, exactly as many as the screen has.
std::string draw_top(const TopState& state, const TopData& data, const Style& look, size_t rows);

}  // namespace rubato::cli
