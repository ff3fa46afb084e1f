#include "model/notice_source.h"

#include <nlohmann/json.hpp>

namespace rubato {

std::string_view to_string(NoticeService service) {
  switch (service) {
    case NoticeService::kNone:
      return "none";
    case NoticeService::kEc2:
      return "ec2";
    case NoticeService::kGcp:
      return "gcp";
  }
  return "unknown";
}

nlohmann::json to_json(const NoticeSource& source) {
  return {{"service", to_string(source.service)},
          {"rebalance", source.rebalance},
          {"file", source.file},
          {"command", source.command}};
}

NoticeSource notice_source_from_json(const nlohmann::json& json) {
  NoticeSource out;
  const std::string service = json.at("service").get<std::string>();
  for (const NoticeService one : {NoticeService::kEc2, NoticeService::kGcp}) {
    if (service == to_string(one)) out.service = one;
  }
  out.rebalance = json.value("rebalance", false);
  out.file = json.value("file", "");
  out.command = json.value("command", "");
  return out;
}

}  // namespace rubato
