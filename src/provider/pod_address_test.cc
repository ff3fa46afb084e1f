#include "provider/pod_address.h"

#include <gtest/gtest.h>

namespace rubato::provider {
namespace {

using Argv = std::vector<std::string>;

SshTarget pod_target(const std::string& host = "pod:ml/lab-head/node@arn:aws:eks:eu:1:cluster/x") {
  SshTarget target;
  target.host = host;
  target.user = "ubuntu";
  target.port = 22;
  target.key_file = "/k";
  target.control_folder = "/c";
  target.proxy_command = "/opt/rubato";
  return target;
}

TEST(PodAddress, IsATextInThePlaceOfAHost) {
  const auto pod = parse_pod_address("pod:ml/lab-head/node@arn:aws:eks:eu:1:cluster/x");
  ASSERT_TRUE(pod);
  EXPECT_EQ(*pod, (PodAddress{"ml", "lab-head", "node", "arn:aws:eks:eu:1:cluster/x"}));
  EXPECT_EQ(to_string(*pod), "pod:ml/lab-head/node@arn:aws:eks:eu:1:cluster/x");
  EXPECT_EQ(to_string(*parse_pod_address("pod:a/b/c")), "pod:a/b/c");
  for (const char* host : {"10.0.0.1", "pod", "pod:", "pod:a/b", "pod:a/b/c/d", "pod:A/b/c", "pod:-a/b/c", "pod:a//c"})
    EXPECT_FALSE(parse_pod_address(host)) << host;
}

TEST(PodAddress, NamesOfNodesAreNamesOfPods) {
  EXPECT_EQ(pod_name("lab", "worker-12"), "lab-worker-12");
  const std::string odd = pod_name("lab", "GPU_big-1");
  EXPECT_TRUE(odd.starts_with("lab-gpu-big-1-")) << odd;
  EXPECT_NE(odd, pod_name("lab", "gpu-big-1"));
  EXPECT_LE(pod_name("lab", std::string(80, 'x')).size(), 63u);
  EXPECT_NE(pod_name("lab", std::string(80, 'x')), pod_name("lab", std::string(81, 'x')));
  EXPECT_EQ(sibling_pod("pod:ml/lab-head/node@c", "lab", "worker-1"), "pod:ml/lab-worker-1/node@c");
}

TEST(PodAddress, OurProgramIsTheSshOfPods) {
  SshOptions options;
  options.command = "exec sh";
  EXPECT_EQ(ssh_argv(pod_target("pod:ml/lab-head/node"), options),
            (Argv{"/opt/rubato", "k8s", "shell", "ml/lab-head/node", "exec sh"}));
  options.tty = true;
  options.forwards = {{"127.0.0.1:8000", "127.0.0.1:8265"}};
  EXPECT_EQ(ssh_argv(pod_target(), options),
            (Argv{"/opt/rubato", "k8s", "shell", "--context", "arn:aws:eks:eu:1:cluster/x", "--tty", "--forward",
                  "127.0.0.1:8000=8265", "ml/lab-head/node", "exec sh"}));
  EXPECT_EQ(pod_forward_argv(pod_target("pod:a/b/c"), "/s.sock", 8265),
            (Argv{"/opt/rubato", "k8s", "forward", "/s.sock", "a/b/c", "8265"}));
  EXPECT_EQ(control_path(pod_target()), "");
  EXPECT_EQ(to_string(pod_target()), "pod ml/lab-head");
}

TEST(PodAddress, FailuresComeThroughAsOneLine) {
  const Error away(ErrorCode::kUnavailable, "connection refused", "", "is it up?");
  const Error never(ErrorCode::kAuth, "you may not", "", "");
  const Error first = explain_ssh(pod_target(), "what the command wrote\n" + pod_failure_line(away));
  EXPECT_EQ(first.code, ErrorCode::kUnavailable);
  EXPECT_EQ(first.message, "pod ml/lab-head: connection refused (is it up?)");
  const Error second = explain_ssh(pod_target(), pod_failure_line(never));
  EXPECT_EQ(second.code, ErrorCode::kUsage);
  EXPECT_EQ(second.message, "pod ml/lab-head: you may not");
  EXPECT_EQ(explain_ssh(pod_target(), "").code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace rubato::provider
