// A node refers to the recipe that it was made by, whatever the newest file says; journals without recipes are read.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cluster/event.h"
#include "cluster/state_testing.h"
#include "model/cluster_file.h"

namespace rubato::cluster {
namespace {

using Json = nlohmann::json;

std::string text_with(const std::string& container, const std::string& more = "") {
  return "cluster_name: lab\nprovider: {type: local, head_ip: h, worker_ips: [a, b]}\n"
         "docker: {image: i, container_name: " +
         container + "}\n" + more;
}

ClusterConfigured accepted(const std::string& text) {
  return ClusterConfigured{read_cluster_spec(text, "cluster.yaml"), text};
}

const NodeId kNode{"worker-1"};

NodeRequested requested(const State& state) {
  NodeRequested request;
  request.node = kNode;
  request.type = kHostType;
  request.hash = launch_hash(*state.spec, state.spec->types.at(request.type));
  request.runtime = state.spec->types.at(request.type).runtime;
  return request;
}

std::string container_of(const State& state, const std::string& recipe) {
  const NodeRecipe* found = find_recipe(state, recipe);
  return found && found->container ? found->container->container.name : "(none)";
}

class RecipeTest : public testing::Test {
 protected:
  void SetUp() override {
    history.add(accepted(text_with("old")));
    history.add(requested(state()));
    history.add(NodeCreated{kNode, node().runtime});
  }
  const State& state() const { return history.state; }
  const Node& node() const { return history.state.nodes.at(kNode); }

  History history;
};

TEST_F(RecipeTest, ANodeKeepsItsRecipeWhenTheFileChanges) {
  history.add(accepted(text_with("new")));
  EXPECT_EQ(container_of(state(), node().recipe), "old");
  EXPECT_EQ(state().old_recipes.size(), 1u);
  const State back = decode_snapshot(encode_snapshot(state()));
  EXPECT_EQ(container_of(back, back.nodes.at(kNode).recipe), "old");
  history.add(NodeGone{kNode});
  EXPECT_TRUE(state().old_recipes.empty()) << "nobody needs it any more";
}

TEST_F(RecipeTest, AnUpdateRemembersWhatIsLeftOfTheRecipeBeforeUntilItIsDone) {
  history.add(accepted(text_with("new")));
  const std::string runtime = state().spec->types.at(std::string(kHostType)).runtime;
  history.add(NodeUpdating{kNode, runtime, "its container has changed"});
  EXPECT_EQ(container_of(state(), node().recipe), "new");
  ASSERT_EQ(node().recipes_before.size(), 1u);
  EXPECT_EQ(container_of(state(), node().recipes_before[0]), "old");
  const State back = decode_snapshot(encode_snapshot(state()));
  EXPECT_EQ(back.nodes.at(kNode).recipes_before, node().recipes_before);
  // Once more, before that is done: both may have left something.
  history.add(accepted(text_with("newest")));
  history.add(NodeUpdating{kNode, state().spec->types.at(std::string(kHostType)).runtime, "again"});
  ASSERT_EQ(node().recipes_before.size(), 2u);
  EXPECT_EQ(container_of(state(), node().recipes_before[1]), "new");
  history.add(NodeCreated{kNode, node().runtime});
  EXPECT_TRUE(node().recipes_before.empty());
  EXPECT_EQ(container_of(state(), node().recipe), "newest");
}

TEST_F(RecipeTest, WhatIsPutThereBesideItsWorkLeavesTheNodeInItsContainer) {
  history.add(accepted(text_with("new")));
  const std::string runtime = state().spec->types.at(std::string(kHostType)).runtime;
  history.add(NodeRefreshing{kNode, runtime});
  history.add(NodeRefreshed{kNode, runtime, ""});
  EXPECT_EQ(node().runtime, runtime);
  EXPECT_EQ(container_of(state(), node().recipe), "old");
}

// What 0.1.0 wrote: a spec without recipes, beside the file's text.
Json without_recipes(Json spec) {
  for (const char* key : {"recipes", "head_recipe", "provider_config"}) spec.erase(key);
  for (Json& type : spec["types"]) {
    for (const char* key : {"recipe", "node_config", "labels"}) type.erase(key);
  }
  return spec;
}

TEST_F(RecipeTest, AJournalWithoutRecipesIsCompiledFromItsText) {
  const ClusterConfigured now = accepted(text_with("old"));
  Json record = Json::parse(encode(kTestStart, now));
  record["spec"] = without_recipes(record["spec"]);
  History older;
  older.add(std::get<ClusterConfigured>(decode(1, record.dump()).event));
  EXPECT_EQ(older.state.spec, now.spec);
  older.add(requested(older.state));
  EXPECT_EQ(container_of(older.state, older.state.nodes.at(kNode).recipe), "old");
}

TEST_F(RecipeTest, ASnapshotWithoutRecipesIsCompiledFromItsText) {
  Json snapshot = Json::parse(encode_snapshot(state()));
  snapshot["spec"] = without_recipes(snapshot["spec"]);
  snapshot.erase("old_recipes");
  for (Json& entry : snapshot["nodes"]) {
    entry[1].erase("recipe");
    entry[1].erase("recipes_before");
  }
  const State back = decode_snapshot(snapshot.dump());
  EXPECT_EQ(back.spec, state().spec);
  EXPECT_EQ(container_of(back, back.nodes.at(kNode).recipe), "old");
}

TEST_F(RecipeTest, ATextThatCannotBeReadAnyMoreIsNoReasonToLoseACluster) {
  ClusterConfigured older = accepted(text_with("old"));
  older.spec.recipes.clear();
  older.spec.head_recipe.clear();
  older.spec.types.at(std::string(kHostType)).recipe.clear();
  older.text = "provider: {type: [}";
  History history_of_it;
  history_of_it.add(older);
  history_of_it.add(requested(history_of_it.state));
  EXPECT_EQ(find_recipe(history_of_it.state, history_of_it.state.nodes.at(kNode).recipe), nullptr);
}

}  // namespace
}  // namespace rubato::cluster
