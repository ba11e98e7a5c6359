import numpy as np, math
from dataclasses import replace
from scipy.signal import lfilter
from invar_nb.statistics.jackknife import jackknife_statistic
from invar_nb.statistics.serial import _widened, serial_ratio
def drift(l,t,codes,n,prev):
    s=[np.bincount(codes[k],w[k],n) for k in (prev,~prev) for w in (l*t,t)]
    v=[s[i].sum()/s[i+1].sum() for i in (0,2)]
    w=[(s[i].sum()-s[i])/(s[i+1].sum()-s[i+1]) for i in (0,2)]
    return v[1]-v[0], w[1]-w[0]
rng=np.random.default_rng(1)
for n in (60,200,600,1200):
  for rho in (0,.5,.8):
    c=0;cp=0;R=1500;cs=0
    for _ in range(R):
        e=rng.normal(size=n+300); x=lfilter([1],[1,-rho],e)[300:]
        t=np.full(n,100.); prev=np.arange(n)<n//2
        v,w=drift(x,t,np.arange(n),n,prev)
        f0=jackknife_statistic(v,w); f=_widened(f0,w.mean()-w)
        cp+=f0.interval().contains(0); c+=f.interval().contains(0)
        cs+=serial_ratio(x*t,t).interval().contains(0)
    print(n,rho,"windows",cp/R,"widened",c/R,"serial mean",cs/R)
# documents
for docs in (20,40,100):
  c=0;R=3000
  for _ in range(R):
    n=docs*10; d=np.repeat(rng.normal(size=docs),10); x=d+rng.normal(size=n); prev=np.arange(n)<n//2
    t=np.repeat(rng.integers(50,150,docs),10).astype(float)
    v,w=drift(x,t,np.arange(n)//10,docs,prev); c+=jackknife_statistic(v,w).interval().contains(0)
  print("docs",docs,c/R)
