-- expect: ok mesh dp_shard=2 ep=2 | parallel ep, fsdp2(reshard, not over ep), compile(model) | experts 2 | equal
-- expect: ok count ep all_to_all 16 | count dp_shard all_gather 28 | count dp_shard reduce_scatter 7
-- Attention, experts and router are units of their own, and the norms are in the root's unit. A proof of the plan
-- shows that no reduction falls between two exchanges of tokens.
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4 },
  train = { batch_size = 1, seq_len = 64, grad_accum_steps = 2 },
  distributed = { dp_shard = 2, ep = 2 },
}
