import subprocess, sys, html, collections
data, out, title = sys.argv[1:4]
text = subprocess.run(["perf","script","-i",data,"-F","comm,ip,sym"],capture_output=True,text=True).stdout
root = {}; total = 0
def add(stack):
    node = root
    for name in stack:
        entry = node.setdefault(name,[0,{}]); entry[0]+=1; node = entry[1]
for block in text.split("\n\n"):
    lines = [l.strip() for l in block.strip().split("\n") if l.strip()]
    if len(lines)<2: continue
    names = []
    for l in lines[1:]:
        name = l.split(" ",1)[1] if " " in l else l
        name = name.split("+0x")[0]
        names.append(name if name!="[unknown]" else "?")
    total += 1; add([n for n in reversed(names)])
W,H = 1200,16; rects=[]; depth_max=0
def walk(node,x,depth):
    global depth_max
    for name,(count,kids) in sorted(node.items()):
        w = count*W/total
        if w >= 0.6:
            depth_max=max(depth_max,depth); rects.append((x,depth,w,name,count)); walk(kids,x,depth+1)
        x += w
walk(root,0,0)
height=(depth_max+3)*H+20
kernel=lambda n: not ("::" in n or n.startswith(("_Z","stoker","tokio","hyper")))
svg=[f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {height}" font-family="monospace" font-size="11"><rect width="{W}" height="{height}" fill="#fff"/><text x="6" y="15">{html.escape(title)}; {total} samples; orange: the daemon, blue: the kernel and libraries</text>']
for x,d,w,n,c in rects:
    y=height-(d+1)*H-4
    svg.append(f'<g><title>{html.escape(n)} {100*c/total:.1f} %</title><rect x="{x:.1f}" y="{y}" width="{max(w-0.4,0.2):.1f}" height="{H-1}" fill="{"#7fb0d8" if kernel(n) else "#f0a35e"}"/>'+(f'<text x="{x+2:.1f}" y="{y+11}">{html.escape(n[:int(w/6.8)])}</text>' if w>24 else '')+'</g>')
svg.append('</svg>'); open(out,"w").write("\n".join(svg)); print(total,len(rects))
