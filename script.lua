return require 'dialects.credit' {
  world_size = 2, seq_length = 24, model = require 'models.llama' 'tiny', as = 7, seed = 5, 
  trainer = { parallelism = { data = 'ddp', tensor = 2 }, mode = 2, train_batch_size = 1, cpu_offload = true, seed_by_dp_rank = 'after_build', grad_max_norm = 1.0, },
}
