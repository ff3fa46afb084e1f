#include "kubernetes/kubeconfig.h"

#include <gtest/gtest.h>

#include "kubernetes/access.h"
#include "rest/base64.h"
#include "rest/rest_testing.h"
#include "world/server_name.h"

namespace rubato::kubernetes {
namespace {

constexpr const char* kText = R"(
apiVersion: v1
kind: Config
current-context: dev
clusters:
- name: one
  cluster:
    server: https://10.0.0.1:6443
    certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==
- name: two
  cluster: {server: "https://two.example.com", certificate-authority: ca.pem}
- name: open
  cluster: {server: "https://open", insecure-skip-tls-verify: true}
contexts:
- name: dev
  context: {cluster: one, user: me, namespace: training}
- name: prod
  context: {cluster: two, user: plugin}
- name: open
  context: {cluster: open, user: me}
users:
- name: me
  user: {client-certificate: me.crt, client-key: /keys/me.key}
- name: plugin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: aws
      args: [eks, get-token]
      env: [{name: AWS_PROFILE, value: prod}]
)";

Kubeconfig read(const char* text = kText) {
  Kubeconfig config;
  add_kubeconfig(config, text, "/home/me/.kube/config");
  return config;
}

std::string error_of(const Kubeconfig& config, const std::string& context) {
  try {
    choose_context(config, context);
  } catch (const Error& error) {
    return error.message;
  }
  return "";
}

TEST(Kubeconfig, ReadsTheCurrentContextWithItsCertificates) {
  const ChosenContext chosen = choose_context(read(), "");
  EXPECT_EQ(chosen.name, "dev");
  EXPECT_EQ(chosen.cluster.server, "https://10.0.0.1:6443");
  EXPECT_TRUE(chosen.cluster.ca.starts_with("-----BEGIN CERTIFICATE"));
  EXPECT_EQ(chosen.user.certificate, "/home/me/.kube/me.crt");
  EXPECT_EQ(chosen.user.key, "/keys/me.key");
  EXPECT_EQ(chosen.context.namespace_name, "training");
}

TEST(Kubeconfig, ReadsExecPlugins) {
  const ChosenContext chosen = choose_context(read(), "prod");
  ASSERT_TRUE(chosen.user.exec);
  EXPECT_EQ(chosen.user.exec->command, "aws");
  EXPECT_EQ(chosen.user.exec->args, (std::vector<std::string>{"eks", "get-token"}));
  EXPECT_EQ(chosen.cluster.ca, "/home/me/.kube/ca.pem");
}

TEST(Kubeconfig, TheFirstFileCounts) {
  Kubeconfig config = read();
  add_kubeconfig(config, "current-context: prod\nclusters: [{name: one, cluster: {server: 'https://other'}}]", "b");
  EXPECT_EQ(config.current_context, "dev");
  EXPECT_EQ(config.clusters["one"].server, "https://10.0.0.1:6443");
}

TEST(Kubeconfig, RefusesWhatIsUnsafeOrMissing) {
  EXPECT_NE(error_of(read(), "open").find("insecure-skip-tls-verify"), std::string::npos);
  EXPECT_EQ(error_of(read(), "nowhere"), "the kubeconfig has no context 'nowhere'");
  EXPECT_EQ(error_of(read("clusters: []"), ""), "the kubeconfig has no current-context");
  EXPECT_THROW(read("- 1"), Error);
  EXPECT_THROW(read("clusters: [{name: a, cluster: {certificate-authority-data: '!!'}}]"), Error);
}

Task<void> expect_the_way_of(World& world, const ChosenContext& chosen, const ChosenContext& far) {
  const Access access(world, chosen, {});
  Login login;
  login.authorization = "Bearer t";
  HttpRequest request;
  access.introduce(login, request);
  EXPECT_EQ(request.headers["authorization"], "Bearer t");
  EXPECT_EQ(request.headers[kServerNameTerm], "kubernetes");
  EXPECT_EQ(request.headers["impersonate-user"], "bob");
  EXPECT_EQ(request.headers["impersonate-uid"], "7");
  EXPECT_EQ(request.headers["impersonate-group"], "devs\nops");
  EXPECT_EQ(request.headers["impersonate-extra-team%2Fx"], "ml\ndl");
  const Endpoint named{"proxy", 3128};
  const std::optional<HttpProxy> proxy = access.proxy();
  EXPECT_TRUE(proxy && proxy->endpoint == named);
  EXPECT_THROW(Access(world, far, {}).proxy(), Error);
  co_return;
}

// A name in the certificate that is not the server's, a proxy, somebody else's name: as of Teleport and of tunnels.
TEST(Kubeconfig, WhatItSaysOfTheWayIsInEachRequest) {
  const Kubeconfig config = read(R"(
current-context: c
clusters:
- name: c
  cluster: {server: "https://127.0.0.1:9443", tls-server-name: kubernetes, proxy-url: "http://me:pw@proxy:3128"}
- {name: far, cluster: {server: "https://far", proxy-url: "socks5://proxy:1080"}}
contexts: [{name: c, context: {cluster: c, user: ann}}, {name: far, context: {cluster: far, user: ann}}]
users:
- name: ann
  user: {token: t, as: bob, as-uid: "7", as-groups: [devs, ops], as-user-extra: {Team/x: [ml, dl]}}
)");
  const ChosenContext near = choose_context(config, ""), far = choose_context(config, "far");
  rest::ScriptedWorld scripted;
  scripted.run([&](World& world) { return expect_the_way_of(world, near, far); });
}

Task<void> expect_proxies(World& world, const ChosenContext& chosen) {
  EXPECT_FALSE(Access(world, chosen, {}).proxy());
  EXPECT_TRUE(Access(world, chosen, {{"HTTPS_PROXY", "proxy:3128"}}).proxy());
  EXPECT_FALSE(Access(world, chosen, {{"HTTPS_PROXY", "proxy:3128"}, {"NO_PROXY", "far"}}).proxy());
  co_return;
}

TEST(Kubeconfig, AProxyOfTheEnvironmentIsUsedAsByKubectl) {
  const Kubeconfig config = read("{current-context: c, clusters: [{name: c, cluster: {server: 'https://far:6443'}}], "
                                 "contexts: [{name: c, context: {cluster: c}}]}");
  const ChosenContext chosen = choose_context(config, "");
  rest::ScriptedWorld scripted;
  scripted.run([&](World& world) { return expect_proxies(world, chosen); });
}

// `kubectl config set-credentials --embed-certs` takes a file as it is, with what openssl wrote in front of it.
TEST(Kubeconfig, CertificatesMayHaveTextInFrontAndBeWrapped) {
  const std::string pem = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n";
  const std::string data = rest::base64("Bag Attributes\n    friendlyName: kube\n" + pem);
  const std::string text = "clusters:\n- name: c\n  cluster:\n    certificate-authority-data: |\n      " +
                           data.substr(0, 20) + "\n      " + data.substr(20) + "\n";
  EXPECT_EQ(read(text.c_str()).clusters["c"].ca, pem);
}

TEST(Kubeconfig, GroupsWithoutAUserToActForAreAMistake) {
  EXPECT_THROW(read("users: [{name: a, user: {as-groups: [system:masters]}}]"), Error);
}

// GKE's kubeconfig says provideClusterInfo.
TEST(ExecPlugin, IsToldOfItsClusterWhereItAsksForThat) {
  ExecEntry exec;
  exec.api_version = "client.authentication.k8s.io/v1beta1";
  ClusterEntry one;
  one.server = "https://one";
  one.ca = "PEM";
  EXPECT_EQ(plugin_question(exec, one),
            R"({"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential",)"
            R"("spec":{"interactive":false}})");
  exec.wants_cluster = true;
  EXPECT_NE(plugin_question(exec, one).find(
                R"("cluster":{"certificate-authority-data":"UEVN","server":"https://one"})"),
            std::string::npos);
  one.ca.clear();
  one.tls_server_name = "api";
  EXPECT_EQ(plugin_question(exec, one).find("authority"), std::string::npos);
  EXPECT_NE(plugin_question(exec, one).find(R"("tls-server-name":"api")"), std::string::npos);
  const Kubeconfig config = read(R"(
current-context: c
clusters: [{name: c, cluster: {server: "https://one"}}]
contexts: [{name: c, context: {cluster: c, user: gke}}, {name: typed, context: {cluster: c, user: typed}}]
users:
- {name: gke, user: {exec: {command: gke-gcloud-auth-plugin, provideClusterInfo: true, interactiveMode: IfAvailable}}}
- {name: typed, user: {exec: {command: ask, interactiveMode: Always}}}
)");
  EXPECT_TRUE(choose_context(config, "").user.exec->wants_cluster);
  EXPECT_NE(error_of(config, "typed").find("wants a terminal"), std::string::npos);
}

TEST(ExecPlugin, ReadsTokensAndCertificates) {
  const PluginAnswer answer = read_plugin_answer(
      R"({"kind":"ExecCredential","status":{"token":"t","expirationTimestamp":"2026-11-16T12:00:00Z"}})", "aws");
  EXPECT_EQ(answer.token, "t");
  EXPECT_TRUE(answer.expires);
  EXPECT_THROW(read_plugin_answer(R"({"kind":"ExecCredential","status":{}})", "aws"), Error);
  EXPECT_THROW(read_plugin_answer("error: not logged in", "aws"), Error);
}

}  // namespace
}  // namespace rubato::kubernetes
