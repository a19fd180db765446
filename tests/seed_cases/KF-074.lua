-- expect: ok plan-entries 4 | weights 8 | local layers.0.mlp.w1.weight 4,64,256 | local layers.0.attention.wq.weight 64,4,1,8
-- expect: ok count tp all_gather 0 | equal
-- Every rank of tp computes all of its experts; sequence parallelism is off.
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 2 },
}
