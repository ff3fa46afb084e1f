#include "petctl/cloud_calls.h"

#include "aws/ec2.h"
#include "aws/identity.h"
#include "rest/base64.h"
#include "rest/cloud_error.h"

namespace rubato::petctl {

using aws::Params;

Task<std::vector<JobTemplate>> find_launch_templates(aws::Client& client, std::vector<aws::Filter> filters) {
  Params params;
  aws::add_filters(params, filters);
  const auto items =
      co_await aws::describe_pages(client, "DescribeLaunchTemplates", std::move(params), "launchTemplates");
  std::vector<JobTemplate> out;
  for (const rest::XmlNode& node : items) {
    JobTemplate one;
    one.id = node.text_at("launchTemplateId");
    one.name = node.text_at("launchTemplateName");
    one.tags = aws::tags_of(node);
    out.push_back(std::move(one));
  }
  co_return out;
}

Task<std::string> latest_console(aws::Client& client, std::string instance) {
  Params params{{"InstanceId", instance}, {"Latest", "true"}};
  std::string text;
  bool unsupported = false;
  try {
    const rest::XmlNode root = co_await client.query(aws::kEc2, "GetConsoleOutput", std::move(params));
    for (const char c : root.text_at("output")) {
      if (c != '\n' && c != '\r' && c != ' ') text += c;
    }
  } catch (const rest::CloudError& error) {
    if (error.reason != "UnsupportedOperation") throw;
    unsupported = true;
  }
  if (unsupported) co_return co_await aws::console_output(client, instance);
  co_return rest::unbase64(text).value_or("");
}

Task<std::optional<std::string>> role_of_profile(aws::Client& client, std::string profile) {
  const size_t slash = profile.rfind('/');
  if (profile.starts_with("arn:") && slash != std::string::npos) profile.erase(0, slash + 1);
  try {
    const std::vector<std::string> roles = co_await aws::roles_of_profile(client, profile);
    if (!roles.empty()) co_return roles.front();
  } catch (const rest::CloudError& error) {
    if (error.reason != "NoSuchEntity") throw;
  }
  co_return std::nullopt;
}

}  // namespace rubato::petctl
