#include "terminal/log_printer.h"

#include "terminal/document.h"

namespace rubato::cli {

using nlohmann::json;

std::string LogPrinter::end_open_line() {
  if (!open_) return "";
  open_.reset();
  return "\n";
}

std::string LogPrinter::take(const json& entry) {
  Writer writer{raw_in(entry, "node"), int_in(entry, "generation"), int_in(entry, "rank", -1), raw_in(entry, "stream")};
  std::string gap;
  if (entry.contains("missing")) gap = end_lines_of(int_in(entry, "generation"), int_in(entry, "rank", -1));
  const auto continues = entry.find("continues");
  const bool is_piece = continues != entry.end() && *continues == true;
  if (open_ == writer) {
    if (!is_piece) open_.reset();
    return raw_in(entry, "text") + (is_piece ? "" : "\n");
  }
  const auto found = held_.find(writer);
  std::string text = found == held_.end() ? log_line(entry, look_) : found->second + raw_in(entry, "text") + "\n";
  if (found != held_.end()) {
    held_bytes_ -= found->second.size();
    held_.erase(found);
  }
  if (!is_piece) return gap + end_open_line() + text;
  text.pop_back();  // the line's end
  if (held_bytes_ + text.size() > kHeldMax) {
    std::string out = end_open_line() + text;
    open_ = std::move(writer);
    return out;
  }
  held_bytes_ += text.size();
  held_[std::move(writer)] = std::move(text);
  return "";
}

// What follows on a gap is not the rest of a line from before it.
std::string LogPrinter::end_lines_of(int64_t generation, int64_t rank) {
  std::string out;
  std::erase_if(held_, [&](const auto& entry) {
    const auto& [writer, text] = entry;
    if (std::get<1>(writer) != generation || std::get<2>(writer) != rank) return false;
    out += text + "\n";
    held_bytes_ -= text.size();
    return true;
  });
  return out.empty() ? out : end_open_line() + out;
}

std::string LogPrinter::flush() {
  std::string out = end_open_line();
  for (const auto& [writer, text] : held_) out += text + "\n";
  held_.clear();
  held_bytes_ = 0;
  return out;
}

}  // namespace rubato::cli
