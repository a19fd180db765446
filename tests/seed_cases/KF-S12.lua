-- expect: ok count dp_shard all_gather 3 | count dp_shard reduce_scatter 3 | equal
-- The first stage: two blocks and the embedding.
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 4, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, grad_accum_steps = 4 },
  distributed = { pp = 2, dp_shard = 2 },
}
