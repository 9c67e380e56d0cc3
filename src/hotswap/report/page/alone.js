// The page of a benchmark alone. Joined to plot.js and benchmark.js.

document.title = "Hot swapping: the benchmark";
$("nothing").hidden = Boolean(data.benchmark);
answers();
benchmark();
