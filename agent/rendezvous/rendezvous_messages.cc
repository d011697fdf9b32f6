#include "agent/rendezvous/rendezvous_messages.h"

#include <utility>

namespace rueda::agent {

v1::EnterRequest to_proto(const Arrival& arrival) {
  v1::EnterRequest out;
  out.set_node_rank(arrival.node_rank);
  out.set_nnodes(arrival.nnodes);
  out.set_nproc(arrival.nproc);
  out.set_node_id(arrival.node_id);
  out.set_control_address(arrival.control_address);
  out.set_rdzv_id(arrival.rdzv_id);
  out.set_launcher(arrival.launcher);
  out.set_guesses_host(arrival.guesses_host);
  out.set_incarnation(arrival.incarnation);
  out.set_min_nodes(arrival.min_nodes);
  out.set_awaits_certificate(arrival.awaits_certificate);
  return out;
}

Arrival from_proto(const v1::EnterRequest& request) {
  return {request.node_rank(),
          request.nnodes(),
          request.nproc(),
          request.node_id(),
          request.control_address(),
          request.rdzv_id(),
          request.launcher(),
          request.guesses_host(),
          request.incarnation(),
          request.min_nodes(),
          request.awaits_certificate()};
}

v1::RunningJob to_proto(const JobIdentity& job, std::string sealed_token) {
  v1::RunningJob out;
  out.set_job_id(job.job_id);
  out.set_sealed_token(std::move(sealed_token));
  out.set_master_addr(job.master_addr);
  out.set_master_port(job.master_port);
  out.set_has_certificates(job.has_certificates);
  return out;
}

v1::EnterReply to_proto(const JobLayout& job) {
  v1::EnterReply reply;
  reply.set_job_id(job.job_id);
  reply.set_token(job.token);
  reply.set_master_addr(job.master_addr);
  reply.set_master_port(job.master_port);
  for (const std::string& contact : job.contacts) reply.add_contacts(contact);
  reply.set_whole_size(job.whole_size);
  reply.set_has_certificates(job.has_certificates);
  for (const NodeLayout& node : job.nodes) {
    v1::NodeSpec& out = *reply.add_nodes();
    out.set_node_id(node.node_id);
    out.set_control_address(node.control_address);
    for (Rank rank : node.ranks) out.add_ranks(rank.value);
    out.set_incarnation(node.incarnation);
  }
  return reply;
}

JobLayout from_proto(const v1::EnterReply& reply) {
  JobLayout out{reply.job_id(), reply.token(), {}, reply.master_addr(), reply.master_port()};
  out.contacts.assign(reply.contacts().begin(), reply.contacts().end());
  out.whole_size = reply.whole_size();
  out.has_certificates = reply.has_certificates();
  for (const v1::NodeSpec& node : reply.nodes()) {
    NodeLayout& added = out.nodes.emplace_back();
    added.node_id = node.node_id();
    added.control_address = node.control_address();
    added.incarnation = node.incarnation();
    for (int rank : node.ranks()) added.ranks.push_back(Rank(rank));
  }
  return out;
}

std::string proven_part(v1::EnterRequest request) {
  request.clear_proof();
  return request.SerializeAsString();
}

std::string unsealed_part(v1::EnterReply reply) {
  reply.clear_token();
  reply.clear_sealed_token();
  return reply.SerializeAsString();
}

std::string unsealed_part(v1::RunningJob job) {
  job.clear_sealed_token();
  // No message begins with a byte of zero.
  return std::string("\0running\n", 9) + job.SerializeAsString();
}

}  // namespace rueda::agent
