-- expect: note[dialect-differs] the auxiliary loss is computed for each sequence
-- expect: note[dialect-differs] an expert's capacity counts all choices of a sequence together
-- expect: ok experts 4 | equal
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4, moe_capacity_factor = 1.0, moe_aux_loss_weight = 0.01 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { dp_shard = 2 },
}
