// NoticeSource: where a node's agent hears that its machine will be taken away.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace rubato {

// The service of a cloud that tells its machines.
enum class NoticeService { kNone, kEc2, kGcp };
std::string_view to_string(NoticeService service);  // "ec2"

struct NoticeSource {
  NoticeService service = NoticeService::kNone;
  bool rebalance = false;  // EC2's recommendation counts as a notice
  std::string file;        // as of `rubato run --notice`; %n is the node's name; empty: none
  std::string command;     // a shell's; ends with 0 when there is a notice, which it prints; empty: none
  bool empty() const { return service == NoticeService::kNone && file.empty() && command.empty(); }
  bool operator==(const NoticeSource&) const = default;
};

nlohmann::json to_json(const NoticeSource& source);
NoticeSource notice_source_from_json(const nlohmann::json& json);  // throws what json throws

}  // namespace rubato
